"""The clock by which tuples arrive: it goes on by the machine's monotonic time when the wall clock
is set back, and follows it when that is set forward."""

from __future__ import annotations

import time
from collections.abc import Callable

TOLERANCE_US = 50_000
"""The two clocks are read one after the other, and a wall clock is slewed: so much apart they
agree."""


class ArrivalClock:
    def __init__(
        self,
        wall_ns: Callable[[], int] = lambda: time.time_ns(),
        monotonic_ns: Callable[[], int] = lambda: time.monotonic_ns(),
    ) -> None:
        self._wall_ns = wall_ns
        self._monotonic_ns = monotonic_ns
        self._now_us = 0
        self._read_us = monotonic_ns() // 1000

    def begin_at(self, now_us: int) -> None:
        """It has shown this before."""
        self._now_us = max(self._now_us, now_us)

    def now_us(self) -> int:
        """Never less than before."""
        wall, read = self._wall_ns() // 1000, self._monotonic_ns() // 1000
        expected = self._now_us + read - self._read_us
        self._read_us = read
        if wall >= expected - TOLERANCE_US:
            self._now_us = max(self._now_us, wall)
        else:
            self._now_us = expected
        return self._now_us
