"""COUNT(DISTINCT …) over windows: counts are whole numbers, so here subtracting is exact."""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heappop, heappush

import numpy as np

from anabranch.window.panes import Ints

Seen = tuple[int, Hashable]
"""A key's number and a value that occurred with it."""


class Distinct:
    """Only the last pane in which a value occurred counts. Ask for windows in order."""

    def __init__(self) -> None:
        self._panes: dict[int, set[Seen]] = {}
        self._uncounted: list[int] = []
        self._held: list[int] = []
        """Both are heaps of numbers of panes."""
        self._last: dict[Seen, int] = {}
        self._counts: dict[int, int] = {}

    def add(self, pane: int, key: int, value: Hashable) -> None:
        if pane not in self._panes:
            self._panes[pane] = set()
            heappush(self._uncounted, pane)
            heappush(self._held, pane)
        self._panes[pane].add((key, value))

    def window(self, first: int, end: int, keys: Ints) -> Ints:
        """How many values each of `keys` has in the panes from `first` up to before `end`."""
        self.drop(first)
        while self._uncounted and self._uncounted[0] < end:
            pane = heappop(self._uncounted)
            for one in self._panes.get(pane, ()):
                if one not in self._last:
                    self._counts[one[0]] = self._counts.get(one[0], 0) + 1
                self._last[one] = pane
        return np.array([self._counts.get(key, 0) for key in keys.tolist()], np.int64)

    def drop(self, before: int) -> None:
        """Notes that no window begins before pane `before` any more."""
        while self._held and self._held[0] < before:
            pane = heappop(self._held)
            for one in self._panes.pop(pane):
                if self._last.get(one) == pane:
                    del self._last[one]
                    self._counts[one[0]] -= 1
                    if not self._counts[one[0]]:
                        del self._counts[one[0]]
