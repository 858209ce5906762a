"""What an outlet sees of its traffic over the last seconds: what a standby's cost depends on."""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from statistics import fmean, pstdev
from typing import Any

WINDOW_S = 2.0
ACKS = 4
OLDEST_S = 20.0
"""The newest so many acks are looked at, however far apart they are: windows of ten minutes release
something every ten minutes. They say nothing any more if none has come for as long as three should
have taken, and this long."""


class Meter:
    """Times are given, in seconds of any one clock."""

    def __init__(self) -> None:
        self._appended: deque[tuple[float, int, int]] = deque()
        self._released: dict[str, deque[tuple[float, int, int]]] = {}

    def appended(self, now: float, rows: int, nbytes: int) -> None:
        if rows:
            self._appended.append((now, rows, nbytes))
            _forget(self._appended, now)

    def released(self, now: float, consumer: str, left: int, last: int) -> None:
        """An ack has released some of the consumer's tuples and `left` others, the last of which is
        the `last`."""
        acks = self._released.setdefault(consumer, deque())
        acks.append((now, left, last))
        _forget(acks, now, ACKS)

    def report(self, now: float, consumer: str) -> dict[str, Any]:
        """Tuples a second, tuples at a time, bytes of one; seconds between acks, and the tuples
        that they leave, with how far that varies; the acks themselves, as the tuples that came
        before each since the one before it, and those it left. Nothing of acks while there are too
        few; empty while nothing comes at all."""
        _forget(self._appended, now)
        acks = self._released.get(consumer, deque())
        _forget(acks, now, ACKS)
        rows = sum(n for _, n, _ in self._appended)
        if rows == 0:
            return {}
        came = {
            "rate": rows / WINDOW_S,
            "chunk": rows / len(self._appended),
            "tuple_bytes": sum(size for _, _, size in self._appended) / rows,
        }
        return came | self._acks(now, acks)

    def _acks(self, now: float, acks: deque[tuple[float, int, int]]) -> dict[str, Any]:
        if len(acks) < ACKS - 1:
            return {}
        interval_s = (acks[-1][0] - acks[0][0]) / (len(acks) - 1)
        if now - acks[-1][0] > max(OLDEST_S, 3 * interval_s):
            return {}
        left = [n for _, n, _ in acks]
        came = [now - before for (_, _, before), (_, _, now) in pairwise(acks)]
        return {
            "ack_interval_s": interval_s,
            "left": fmean(left),
            "left_spread": 1.7 * pstdev(left),  # of a uniform distribution
            "acks": list(zip(came, left[1:], strict=True)),
        }


def _forget(events: deque[tuple[float, int, int]], now: float, keep: int = 0) -> None:
    while len(events) > keep and events[0][0] < now - WINDOW_S:
        events.popleft()
