"""How long whoever waits for something that is away pauses before the next try."""

from __future__ import annotations

import zlib
from dataclasses import dataclass


@dataclass(frozen=True)
class Backoff:
    """Pauses double from `first_s` to `longest_s`, and each is shortened by up to half, by another
    part for everybody: those that lost one service together do not all come back to it at once.
    The part follows from who waits and for the how manieth time, so a simulated run repeats."""

    first_s: float
    longest_s: float

    def pause_s(self, tries: int, who: str) -> float:
        """After so many failures in a row, one at least."""
        whole = min(self.longest_s, self.first_s * 2.0 ** min(tries - 1, 60))
        return whole * (0.5 + zlib.crc32(f"{who} {tries}".encode()) / 2**33)
