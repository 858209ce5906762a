"""The queue of a site's task instances: earliest absolute deadline first, then first come."""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

T = TypeVar("T")

NO_DEADLINE = 2**63 - 1


class EdfQueue(Generic[T]):
    """Ties in deadline go to the earlier arrival, ties in both to the earlier push. An item is in
    the queue once: pushed again it moves up if it has become more urgent, and never down. A push or
    pop takes O(log n), since an item that moved up leaves its old entry in the heap, to be skipped.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, T]] = []
        self._current: dict[T, tuple[int, int, int]] = {}
        self._pushes = 0

    def push(self, item: T, *, arrival: int, deadline: int = NO_DEADLINE) -> None:
        self._pushes += 1
        key = (deadline, arrival, self._pushes)
        if item in self._current and self._current[item][:2] <= key[:2]:
            return
        self._current[item] = key
        heapq.heappush(self._heap, (*key, item))

    def pop(self) -> T:
        """The most urgent item. Raises IndexError when empty."""
        while True:
            *key, item = heapq.heappop(self._heap)
            if self._current.get(item) == tuple(key):
                del self._current[item]
                return item

    def __len__(self) -> int:
        return len(self._current)
