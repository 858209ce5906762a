"""An inlet as a site has it: a subscription offers, a task takes, and all inlets of a process
together hold a bounded number of bytes.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Generic

from anabranch.runtime.base import Runtime
from anabranch.stream.batch import BORN, Batch, P
from anabranch.stream.inlet import Inlet


class Budget:
    """Counts what waits in the inlets that share it and what running instances took from them.

    A single busy inlet may use all of it, several share it. It paces and does not allocate: an
    inlet with little waiting goes beyond it; otherwise those that used it up might wait for ever
    for the ones after them. `changed` wakes those who wait for space.
    """

    def __init__(self, runtime: Runtime, total: int) -> None:
        self.runtime = runtime
        self.changed = runtime.signal()
        self.total = total
        self._used = 0

    @property
    def left(self) -> bool:
        return self._used < self.total

    @property
    def used(self) -> bool:
        """Whether something waits or runs."""
        return self._used > 0

    def use(self, size: int) -> None:
        self._used += size

    def give_back(self, size: int) -> None:
        self._used -= size
        self.changed.notify()


_FEW = 4096


class LiveInlet(Generic[P]):
    """Bounded: an offerer first waits for `space`, which is missing while `limit` bytes wait; that
    stops the link and so the producer. While the `budget` shared with other inlets is used up, an
    eighth of that is enough to stop it. What an instance took counts there until the task is `done`
    with it.
    """

    def __init__(self, stream: str, *, limit: int, budget: Budget) -> None:
        self.stream = stream
        self._inlet: Inlet[P] = Inlet(stream)
        self._limit = limit
        self._least = max(1, limit // 8)
        self._budget = budget
        self._runtime = budget.runtime
        self._closed = False
        self._full = False
        self._running_bytes = 0
        self._unacked_bytes = 0
        self._arrivals: deque[tuple[int, int]] = deque()
        """Last position and time of arrival, of what waits."""

    def start_at(self, position: int) -> None:
        """Expects the tuple after `position` first. Call it before anything is offered."""
        self._inlet = Inlet(self.stream, position)

    def preload(self, batches: Iterable[Batch[P]]) -> None:
        """Adds batches that are already here, whether or not there is space. Nobody is told."""
        for batch in batches:
            self._add(batch)

    def expect(self, epoch: int) -> None:
        """Refuses what producers of earlier epochs still send."""
        self._inlet.epoch = max(self._inlet.epoch, epoch)

    @property
    def received(self) -> int:
        return self._inlet.received

    @property
    def taken(self) -> int:
        return self._inlet.taken

    @property
    def epoch(self) -> int:
        return self._inlet.epoch

    @property
    def waiting(self) -> int:
        return self._inlet.waiting

    @property
    def waiting_bytes(self) -> int:
        return self._inlet.waiting_bytes

    @property
    def watermark(self) -> int:
        return self._inlet.watermark

    @property
    def drained(self) -> bool:
        return self._inlet.drained

    @property
    def ready(self) -> bool:
        """Whether there is something to take."""
        return self._inlet.progress

    @property
    def full(self) -> bool:
        """Whether it accepts nothing more for now."""
        return self._full or self._inlet.waiting_bytes >= self._limit

    async def space(self) -> None:
        """Waits until something may be offered, or nobody wants anything any more."""
        while not (self._closed or self._space()):
            self._full = True
            await self._budget.changed.wait()
        self._full = False

    async def offer(self, batch: Batch[P]) -> None:
        """Adds what is new in `batch`. Raises Gap and StaleEpoch."""
        if self._closed:
            return
        if self._add(batch):
            self._unacked_bytes += batch.nbytes

    def _add(self, batch: Batch[P]) -> int:
        with self._runtime:
            before = self._inlet.waiting_bytes
            rows = self._inlet.offer(batch)
            if rows:
                self._arrivals.append((self._inlet.received, time.time_ns() // 1000))
            self._budget.use(self._inlet.waiting_bytes - before)
            return rows

    def _space(self) -> bool:
        waiting = self._inlet.waiting_bytes
        return waiting < self._least or (waiting < self._limit and self._budget.left)

    def oldest(self) -> tuple[int, int] | None:
        """The time when the first waiting tuple arrived here, and when it entered the system, in
        µs; None if none waits.
        """
        batch = self._inlet.oldest
        while self._arrivals and self._arrivals[0][0] <= self._inlet.taken:
            self._arrivals.popleft()
        if batch is None:
            return None
        data: Any = batch.data
        born: int = data.column(BORN)[0].as_py()
        return self._arrivals[0][1] if self._arrivals else born, born

    @property
    def portion(self) -> int:
        """A quarter of the tuples that may wait: an instance that takes more would leave the tasks
        before and after it idle while it runs. It is not less than `_FEW`, which take no time worth
        sharing.
        """
        bytes_waiting = max(1, self._inlet.waiting_bytes)
        return max(_FEW, self._inlet.waiting * (self._limit // 4) // bytes_waiting)

    def take(self, max_rows: int) -> Sequence[Batch[P]]:
        """The oldest waiting tuples, for an instance; `done` must follow."""
        with self._runtime:
            before = self._inlet.waiting_bytes
            batches = self._inlet.take(max_rows)
            if not self._closed:  # else it was given back with all that waited
                self._running_bytes += before - self._inlet.waiting_bytes
            self._full = False
            self._budget.changed.notify()
            return batches

    def done(self) -> None:
        """Takes note that the instance has ended, whether or not its task still needs the
        tuples.
        """
        with self._runtime:
            self._full = False  # there may be space now; if not, the link says so again
            self._budget.give_back(self._running_bytes)
            self._running_bytes = 0

    @property
    def ack_overdue(self) -> bool:
        """Whether so much arrived since the last ack that the producer should hear of it now."""
        return self._unacked_bytes > self._limit // 4

    def acked(self) -> int:
        """The position to acknowledge now."""
        self._unacked_bytes = 0
        return self._inlet.received

    def close(self) -> None:
        with self._runtime:
            if not self._closed:
                self._closed = True
                self._budget.give_back(self._inlet.waiting_bytes)
