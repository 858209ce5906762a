"""An inlet with threads around it: a subscription offers, a task takes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pyarrow as pa

from anabranch.stream.batch import Batch
from anabranch.stream.inlet import Inlet


class LiveInlet:
    """Bounded: `offer` blocks while `limit` bytes wait, which stops the link and so the producer.

    `on_data` is called after each offer that changed something, without the lock held.
    """

    def __init__(self, stream: str, *, limit: int) -> None:
        self.stream = stream
        self.on_data: Callable[[], None] = lambda: None
        self._inlet: Inlet[pa.RecordBatch] = Inlet(stream)
        self._limit = limit
        self._changed = threading.Condition()
        self._closed = False
        self._unacked_bytes = 0

    def start_at(self, position: int) -> None:
        """Expect the tuple behind `position` first. Before anything is offered."""
        self._inlet = Inlet(self.stream, position)

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
            inlet = self._inlet
            return inlet.progress and (not inlet.more or inlet.waiting_bytes >= self._limit)

    def offer(self, batch: Batch[pa.RecordBatch]) -> None:
        """Add what is new in `batch`, waiting for space first. Raises Gap and StaleEpoch."""
        with self._changed:
            while self._inlet.waiting_bytes >= self._limit and not self._closed:
                self._changed.wait()
            if self._closed:
                return
            if self._inlet.offer(batch):
                self._unacked_bytes += batch.data.nbytes
            progress = self._inlet.progress
        if progress:
            self.on_data()

    def expect_no_more(self) -> None:
        """The link broke: what waits need not wait for the rest."""
        with self._changed:
            self._inlet.more = False
            progress = self._inlet.progress
        if progress:
            self.on_data()

    def take(self, max_rows: int) -> Sequence[Batch[pa.RecordBatch]]:
        with self._changed:
            batches = self._inlet.take(max_rows)
            self._changed.notify_all()
            return batches

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
            self._closed = True
            self._changed.notify_all()
