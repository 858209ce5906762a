"""Kept plan or job, by what both have cost."""

from __future__ import annotations

from collections import deque
from math import log2
from statistics import median

KEPT, JOB = "kept", "job"
_HARDLY_A_JOB_S = 0.05
"""No job is quicker than that by much, however large the cluster: none is tried below."""
_FEW = 5
_AGAIN = 64
"""After so many instances of a size the slower way is tried again."""


class Choice:
    """For each size of instance, in octaves: the way that was quicker at the median of the last
    few. A job is tried only if the kept plan goes on taking long: its first instance, in which the
    JVM loads and compiles, says nothing."""

    def __init__(self) -> None:
        self._seconds: dict[tuple[str, int], deque[float]] = {}
        self._last = KEPT, 0
        self._since: dict[tuple[str, int], int] = {}

    def pick(self, rows: int) -> str:
        size = _size(rows)
        kept, job = self._typical(KEPT, size), self._typical(JOB, size)
        if kept is None or kept < _HARDLY_A_JOB_S or len(self._seconds[KEPT, size]) < _FEW:
            return KEPT
        if job is None:
            return JOB
        better, other = (KEPT, JOB) if kept <= job else (JOB, KEPT)
        return other if self._since.get((other, size), 0) >= _AGAIN else better

    def add(self, way: str, rows: int, seconds: float) -> None:
        size = _size(rows)
        self._last = way, size
        self._seconds.setdefault((way, size), deque(maxlen=_FEW)).append(seconds)
        other = JOB if way == KEPT else KEPT
        self._since[(way, size)] = 0
        self._since[(other, size)] = self._since.get((other, size), 0) + 1

    @property
    def last(self) -> str:
        return self._last[0]

    def why(self) -> str:
        """What both ways cost at the size of the last instance."""
        size = self._last[1]
        kept, job = self._typical(KEPT, size), self._typical(JOB, size)
        if kept is None and job is None:
            return "nothing to evaluate yet"
        told = [
            f"{name} {seconds * 1e3:.1f} ms"
            for name, seconds in (("kept plan", kept), ("job", job))
            if seconds is not None
        ]
        return f"{', '.join(told)} for some {2**size:,} tuples"

    def _typical(self, way: str, size: int) -> float | None:
        known = self._seconds.get((way, size))
        return median(known) if known else None


def _size(rows: int) -> int:
    return int(log2(max(rows, 1)))
