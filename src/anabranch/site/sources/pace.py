"""How far a source that is read as fast as possible may run ahead of what becomes of its tuples."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from anabranch.link.budget import Budget
from anabranch.link.outlet import LiveOutlet

POLL_S = 0.01
REST_S = 2.0
"""Nothing waits or runs in this process and nothing was released for so long: all is at rest."""
PATIENCE_S = 30.0
"""The same, whatever runs in this process: it may have to do with other streams."""


class Pace:
    """Lets about as many bytes of a source as the `budget` has in all be on their way at a time, to
    the last hop and back.

    Back-pressure alone lets every queue on the way fill up; and since each hop keeps a tuple until
    nobody behind it needs it, all that is on its way is in memory once per hop.

    What the process has come to take more than it should (`excess`) comes off that, down to a half,
    with which jobs are still of a size worth having.

    What an outlet keeps may also be in windows, and then be released only when more tuples follow.
    That shows when everything has come to rest: from then on as much again may follow. So this
    delays a source and never stops it.
    """

    def __init__(
        self, outlet: LiveOutlet[Any], budget: Budget, excess: Callable[[], int] = lambda: 0
    ) -> None:
        self._outlet = outlet
        self._budget = budget
        self._excess = excess
        self._needed = 0

    def wait(self, stopped: threading.Event) -> None:
        """Block until more may follow, or `stopped` is set."""
        kept, moved = self._kept(), time.monotonic()
        busy = moved
        while kept >= self._ahead() + 2 * self._needed and not stopped.wait(POLL_S):
            before, kept, now = kept, self._kept(), time.monotonic()
            moved = now if kept < before else moved
            busy = now if kept < before or self._budget.used else busy
            if now > min(busy + REST_S, moved + PATIENCE_S):
                self._needed = kept

    def _ahead(self) -> int:
        total = self._budget.total
        return max(total // 2, total - self._excess())

    def _kept(self) -> int:
        kept = self._outlet.kept()[1]
        self._needed = min(self._needed, kept)
        return kept
