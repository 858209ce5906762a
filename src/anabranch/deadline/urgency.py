"""What a site decides by the clock: which instance runs first, how long it may run, and which
tuples are dropped.

An instance is not interrupted. So a task that arrives just after it has begun waits for its end;
that must take no longer than half of what a more urgent task can spare: its sub-deadline minus its
own cost.

How many tuples may pass depends on the clock and on the past, so it is decided once and recorded.
Which ones depends on the tuples and that number alone, so it can be computed again.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

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


class Laxities:
    """The tasks that share a processor, as (sub-deadline, laxity), in any unit of time."""

    def __init__(self, tasks: Iterable[tuple[int, int]] = ()) -> None:
        self._deadlines: list[int] = []
        self._least: list[int] = []
        for deadline, laxity in sorted(tasks):
            self._deadlines.append(deadline)
            self._least.append(min(laxity, self._least[-1]) if self._least else laxity)

    def allowed(self, deadline: int) -> int | None:
        """The longest that an instance with that sub-deadline may run; None if no task is more
        urgent. It is half of what the least lax of these can spare, since the other half may be
        needed for what is due before it; 0 if it has nothing to spare.
        """
        more_urgent = bisect_left(self._deadlines, deadline)
        return max(0, self._least[more_urgent - 1]) // 2 if more_urgent else None


Worth = NDArray[np.float64]
SPANS = 100
"""What came lately is counted in so many parts of `per_us`."""
REMEMBERED = 1024
"""Values that a tuple is held against."""


class Allowance:
    """At most `most` tuples every `per_us`: a bucket that holds that many, full at first, and fills
    at that rate.

    If the first tuples to come could empty it, the valuable ones would find it empty. So while more
    come than can pass, only that share of the tuples passes that the rate allows; a tuple's worth
    is compared with those that came lately.
    """

    def __init__(self, most: int, per_us: int) -> None:
        self._most = most
        self._per_us = per_us
        self._held = float(most)
        self._at: int | None = None
        self._came: deque[tuple[int, int]] = deque()
        self._worth: Worth = np.empty(0)

    def take(self, now_us: int, wanted: int, worth: Callable[[], Worth]) -> int:
        """How many of `wanted` tuples that come now may pass; they count as passed. `worth` is
        called only if not all can, and gives their worths.
        """
        if not wanted:
            return 0
        if self._at is not None:
            gained = max(0, now_us - self._at) * self._most / self._per_us
            self._held = min(float(self._most), self._held + gained)
        self._at = max(now_us, self._at or now_us)
        share = (self._held + self._most) / max(1, self._lately(self._at, wanted))
        good = wanted if share >= 1 else self._good(worth(), share)
        passed = min(good, int(self._held))
        self._held -= passed
        return passed

    def _lately(self, now_us: int, more: int) -> int:
        """The number of tuples that came in the last `per_us`."""
        while self._came and self._came[0][0] <= now_us - self._per_us:
            self._came.popleft()
        if self._came and now_us - self._came[-1][0] < self._per_us // SPANS:
            since, count = self._came.pop()
            self._came.append((since, count + more))
        else:
            self._came.append((now_us, more))
        return sum(count for _, count in self._came)

    def _good(self, worth: Worth, share: float) -> int:
        """How many of these are in the best `share` of the last ones."""
        known = np.where(np.isnan(worth), -np.inf, worth)
        self._worth = np.concatenate((self._worth, known))[-REMEMBERED:]
        best = max(1, round(share * len(self._worth)))
        least = np.partition(self._worth, len(self._worth) - best)[-best]
        return int(np.count_nonzero(known >= least))


def most_valuable(values: Worth, keep: int) -> NDArray[np.intp]:
    """The places of the `keep` largest values, in the order in which they came. Of equals the first
    are kept; NaN, which stands for NULL too, is worth least.
    """
    worth = np.where(np.isnan(values), -np.inf, values)
    known = ~np.isnan(values)
    order = np.lexsort((np.arange(len(values)), ~known, -worth))
    return np.sort(order[:keep])
