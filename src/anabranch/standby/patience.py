"""Decides when a standby should put off its work.

Under load a standby would repeat all work of its primary, and most of it in vain: a moment later
the primary's results are safe and nobody needs the tuples any more. So it lets much work wait a
while, and begins after what was released meanwhile. Little work is done at once, because then a
take-over finds nothing left to do.
"""

from __future__ import annotations

import math

LITTLE_BYTES = 1 << 20
PATIENCE_S = 2.0


class Patience:
    """The caller gives times, in seconds of any one clock."""

    def __init__(self, patience_s: float = PATIENCE_S, little_bytes: int = LITTLE_BYTES) -> None:
        self._patience_s = patience_s
        self._little = little_bytes
        self._taken: tuple[int, ...] = ()
        self._since = math.inf

    def waits(self, now: float, taken: tuple[int, ...], waiting_bytes: int) -> bool:
        """Whether the standby should still wait, when `waiting_bytes` lie after what was
        `taken`.
        """
        if waiting_bytes < self._little:
            self._since = math.inf
            return False
        if taken != self._taken:
            self._taken, self._since = taken, now
        self._since = min(self._since, now)
        return now < self._since + self._patience_s
