"""How long a client pauses before it tries again to reach something that is away."""

from __future__ import annotations

import zlib
from dataclasses import dataclass


@dataclass(frozen=True)
class Backoff:
    """Pauses double from `first_s` to `longest_s`, and each is shortened by up to half, by a
    different part for each client: clients that lost one service together do not all come back to
    it at once. The part is computed from the client and the number of the try, so a simulated run
    repeats.
    """

    first_s: float
    longest_s: float

    def pause_s(self, tries: int, who: str) -> float:
        """The pause after this many failures in a row, at least one."""
        whole = min(self.longest_s, self.first_s * 2.0 ** min(tries - 1, 60))
        return whole * (0.5 + zlib.crc32(f"{who} {tries}".encode()) / 2**33)
