"""An inlet with threads around it: a subscription offers, a task takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa

from anabranch.link.budget import Budget
from anabranch.stream.batch import Batch
from anabranch.stream.inlet import Inlet


class LiveInlet:
    """Bounded: `offer` blocks while `limit` bytes wait, which stops the link and so the producer.
    With an eighth of that waiting it blocks already while the `budget` shared with other inlets is
    used up. What an instance took counts there until the task is `done` with it.

    `on_data` is called after each offer that changed something, and when one begins to block;
    without the lock held.
    """

    def __init__(self, stream: str, *, limit: int, budget: Budget | None = None) -> None:
        self.stream = stream
        self.on_data: Callable[[], None] = lambda: None
        self._inlet: Inlet[pa.RecordBatch] = Inlet(stream)
        self._limit = limit
        self._least = max(1, limit // 8)
        self._budget = budget or Budget(2 * limit)
        self._changed = self._budget.changed
        self._closed = False
        self._full = False
        self._running_bytes = 0
        self._unacked_bytes = 0

    def start_at(self, position: int) -> None:
        """Expect the tuple behind `position` first. Before anything is offered."""
        self._inlet = Inlet(self.stream, position)

    def preload(self, batches: Iterable[Batch[pa.RecordBatch]]) -> None:
        """Add batches whether or not there is space: they are there already. Nobody is told."""
        with self._changed:
            before = self._inlet.waiting_bytes
            for batch in batches:
                self._inlet.offer(batch)
            self._budget.use(self._inlet.waiting_bytes - before)

    def expect(self, epoch: int) -> None:
        """Refuse what producers of earlier epochs still send."""
        with self._changed:
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
        with self._changed:
            return self._inlet.drained

    @property
    def ready(self) -> bool:
        """There is something to take, and no more is on its way that would fit in with it."""
        with self._changed:
            return self._inlet.progress and (self.full or not self._inlet.more)

    @property
    def full(self) -> bool:
        """Nothing more comes in."""
        return self._full or self._inlet.waiting_bytes >= self._limit

    def offer(self, batch: Batch[pa.RecordBatch]) -> None:
        """Add what is new in `batch`, waiting for space first. Raises Gap and StaleEpoch."""
        while not self._offered(batch):
            self.on_data()  # though more would follow, what waits is all there is space for
            with self._changed:
                while self._full and not (self._closed or self._space()):
                    self._changed.wait()
        with self._changed:
            progress = self._inlet.progress and not self._closed
        if progress:
            self.on_data()

    def _offered(self, batch: Batch[pa.RecordBatch]) -> bool:
        """Add what is new in `batch`, if there is space; True also if nobody wants it any more."""
        with self._changed:
            self._full = not (self._closed or self._space())
            if self._closed or self._full:
                return self._closed
            before = self._inlet.waiting_bytes
            if self._inlet.offer(batch):
                self._unacked_bytes += batch.data.nbytes
            self._budget.use(self._inlet.waiting_bytes - before)
            return True

    def _space(self) -> bool:
        waiting = self._inlet.waiting_bytes
        return waiting < self._least or (waiting < self._limit and self._budget.left)

    def expect_no_more(self) -> None:
        """The link broke: what waits need not wait for the rest."""
        with self._changed:
            self._inlet.more = False
            progress = self._inlet.progress
        if progress:
            self.on_data()

    def take(self, max_rows: int) -> Sequence[Batch[pa.RecordBatch]]:
        """The oldest waiting tuples, for an instance; after it comes `done`."""
        with self._changed:
            before = self._inlet.waiting_bytes
            batches = self._inlet.take(max_rows)
            if not self._closed:  # else it was given back with all that waited
                self._running_bytes += before - self._inlet.waiting_bytes
            self._full = False
            self._changed.notify_all()
            return batches

    def done(self) -> None:
        """The instance that took has ended, whether or not its task still needs the tuples."""
        with self._changed:
            self._full = False  # there may be space now; if not, the link says so again
            self._budget.give_back(self._running_bytes)
            self._running_bytes = 0

    @property
    def ack_overdue(self) -> bool:
        """So much arrived since the last ack that the producer should hear of it now."""
        return self._unacked_bytes > self._limit // 4

    def acked(self) -> int:
        """The position to acknowledge now."""
        with self._changed:
            self._unacked_bytes = 0
            return self._inlet.received

    def close(self) -> None:
        with self._changed:
            if not self._closed:
                self._budget.give_back(self._inlet.waiting_bytes)
            self._closed = True
            self._changed.notify_all()
