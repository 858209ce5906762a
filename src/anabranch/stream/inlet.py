"""Input queue of one stream: takes each tuple once, in order, whatever the link does."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Generic

from anabranch.errors import Gap, StaleEpoch
from anabranch.stream.batch import END_WATERMARK, START_WATERMARK, Batch, P


class Inlet(Generic[P]):
    """`received` is the last position that arrived, `taken` the last one handed to the task;
    `watermark` holds after `taken` (not after what still waits).
    """

    def __init__(self, stream: str, position: int = 0, epoch: int = 0) -> None:
        self.stream = stream
        self.received = position
        self.taken = position
        self.epoch = epoch
        self.watermark = START_WATERMARK
        self.waiting_bytes = 0
        self._newest_watermark = START_WATERMARK
        self._waiting: deque[Batch[P]] = deque()

    @property
    def waiting(self) -> int:
        return self.received - self.taken

    @property
    def oldest(self) -> Batch[P] | None:
        """The batch that `take` would give first."""
        return self._waiting[0] if self._waiting else None

    @property
    def drained(self) -> bool:
        """Whether the stream has ended, and its taker has seen its last tuple and its end."""
        return self.watermark == END_WATERMARK

    @property
    def progress(self) -> bool:
        """Whether `take` would change something: tuples wait, or the watermark moved."""
        return bool(self._waiting) or self._newest_watermark > self.watermark

    def offer(self, batch: Batch[P]) -> int:
        """Adds what is new in `batch`; returns how many tuples that was.

        Raises StaleEpoch for a batch of an earlier epoch than seen, Gap if tuples before it are
        missing. A batch seen before changes nothing.
        """
        if batch.epoch < self.epoch:
            raise StaleEpoch(
                f"stream {self.stream}: batch of epoch {batch.epoch} after epoch {self.epoch}"
            )
        if batch.first > self.received + 1:
            raise Gap(
                f"stream {self.stream}: batch starts at {batch.first}, expected {self.received + 1}"
            )
        self.epoch = batch.epoch
        fresh = batch.after(self.received)
        if fresh.rows:
            self._waiting.append(fresh)
            self.waiting_bytes += fresh.nbytes
            self.received = fresh.last
        self._newest_watermark = max(self._newest_watermark, batch.watermark)
        return fresh.rows

    def take(self, max_rows: int) -> Sequence[Batch[P]]:
        """The oldest waiting tuples, at most `max_rows` of them, and the watermark they allow."""
        taken: list[Batch[P]] = []
        room = max_rows
        while self._waiting and room > 0:
            batch = self._waiting.popleft()
            if batch.rows > room:
                self._waiting.appendleft(batch.after(batch.first + room - 1))
                batch = batch.head(room, self.watermark)
            taken.append(batch)
            room -= batch.rows
            self.taken = batch.last
            self.waiting_bytes -= batch.nbytes
            self.watermark = max(self.watermark, batch.watermark)
        if not self._waiting:
            self.waiting_bytes = 0
            self.watermark = self._newest_watermark
        return taken
