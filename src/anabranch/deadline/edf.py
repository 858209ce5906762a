"""The queue of a site's task instances: earliest absolute deadline first, then first come."""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

T = TypeVar("T")

NO_DEADLINE = 2**63 - 1


class EdfQueue(Generic[T]):
    """Ties in deadline go to the earlier arrival, ties in both to the earlier push."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, T]] = []
        self._pushes = 0

    def push(self, item: T, *, arrival: int, deadline: int = NO_DEADLINE) -> None:
        self._pushes += 1
        heapq.heappush(self._heap, (deadline, arrival, self._pushes, item))

    def pop(self) -> T:
        """The most urgent item. Raises IndexError when empty."""
        return heapq.heappop(self._heap)[-1]

    def __len__(self) -> int:
        return len(self._heap)
