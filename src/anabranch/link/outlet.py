"""An outlet with threads around it: one producer appends, any number of readers follow."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import pyarrow as pa

from anabranch.link.wire import empty_batch
from anabranch.stream.batch import END_WATERMARK, Batch
from anabranch.stream.outlet import Outlet
from anabranch.stream.restart import RestartPoint

RecordBatches = Iterator[Batch[pa.RecordBatch]]


class LiveOutlet:
    """Bounded: `room` is False while the slowest consumer has `limit` bytes still to be sent.

    `on_room` is called when room appears, `on_ack` with the position that every consumer has
    safely has; both without the lock held, from the thread that caused them.
    """

    def __init__(
        self,
        stream: str,
        schema: pa.Schema,
        *,
        limit: int,
        heartbeat_s: float,
        epoch: int = 0,
        whole: bool = False,
    ) -> None:
        self.stream = stream
        self.schema = schema
        self.forget_producer()
        self._outlet: Outlet[pa.RecordBatch] = Outlet(stream, epoch=epoch, whole=whole)
        self._limit = limit
        self._nothing = empty_batch(schema)
        self._heartbeat_s = heartbeat_s
        self._changed = threading.Condition()
        self._closed = False
        self._had_room = True
        self._followers: dict[str, object] = {}
        self._leases: dict[str, float] = {}
        """Since when consumers with a lease do not follow; those that do have `inf`."""

    def forget_producer(self) -> None:
        """Nobody needs to hear of room and acks."""
        self.on_room: Callable[[], None] = lambda: None
        self.on_ack: Callable[[int], None] = lambda position: None

    @property
    def last(self) -> int:
        return self._outlet.last

    @property
    def released(self) -> int:
        return self._outlet.released

    @property
    def ended(self) -> bool:
        return self._outlet.ended

    @property
    def consumers(self) -> tuple[str, ...]:
        with self._changed:
            return tuple(self._outlet.consumers)

    def kept(self) -> tuple[int, int]:
        """Tuples and bytes kept for consumers."""
        with self._changed:
            return self._outlet.last - self._outlet.released, self._outlet.kept_bytes

    def append(self, batches: Iterable[pa.RecordBatch], watermark: int) -> int:
        """Add the batches, the watermark behind the last of them; returns the last position."""
        with self._changed:
            before = self._outlet.watermark
            for data in batches:
                self._outlet.append(data, before)
            self._outlet.advance(watermark)
            self._had_room = self._outlet.unsent_bytes() < self._limit
            self._changed.notify_all()
            return self._outlet.last

    def end(self) -> None:
        """No tuple will follow. Idempotent."""
        with self._changed:
            self._outlet.advance(END_WATERMARK)
            self._changed.notify_all()

    def room(self) -> bool:
        with self._changed:
            return self._outlet.unsent_bytes() < self._limit

    def wait_for_room(self, stopped: threading.Event, timeout_s: float = math.inf) -> bool:
        """Block until there is room; False if `stopped` is set, the outlet closed or the time is
        over first."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not (self._closed or stopped.is_set()):
                if self._outlet.unsent_bytes() < self._limit:
                    return True
                if time.monotonic() >= deadline:
                    return False
                self._changed.wait(0.1)
        return False

    def start_at(self, position: int) -> None:
        """The next tuple is the one behind `position`. Before anything is appended."""
        with self._changed:
            before = self._outlet
            self._outlet = Outlet(self.stream, position, before.epoch, whole=before.whole)
            for consumer, known in before.consumers.items():  # who was quick to come back
                self._outlet.attach(consumer, after=position, local=known.local)

    def attach(
        self,
        consumer: str,
        *,
        after: int | None = None,
        local: bool = False,
        lease: bool = False,
    ) -> int:
        """With a `lease` it is detached when it does not follow for long; see `expire`."""
        with self._changed:
            if lease:
                self._leases[consumer] = time.monotonic()
            return self._outlet.attach(consumer, after=after, local=local)

    @property
    def leased(self) -> tuple[str, ...]:
        with self._changed:
            return tuple(self._leases)

    def expire(self, lease_s: float) -> None:
        """Detach programs that have gone without saying so: nobody else would ever."""
        with self._changed:
            gone = [one for one, since in self._leases.items()
                    if time.monotonic() - since > lease_s]  # fmt: skip
        for consumer in gone:
            self.detach(consumer)

    def detach(self, consumer: str) -> None:
        with self._changed:
            self._leases.pop(consumer, None)
            self._outlet.detach(consumer)
            acknowledged = self._outlet.acknowledged()
            self._changed.notify_all()
        self.on_room()
        self.on_ack(acknowledged)

    def level0(self, consumer: str, position: int, epoch: int) -> None:
        with self._changed:
            acknowledged = self._outlet.level0(consumer, position, epoch)
        self.on_ack(acknowledged)

    def level1(self, consumer: str, input_position: int, point: RestartPoint) -> None:
        with self._changed:
            self._outlet.level1(consumer, input_position, point)
            acknowledged = self._outlet.acknowledged()
        self._tell_room()
        self.on_ack(acknowledged)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def follow(
        self, consumer: str, after: int, gone: Callable[[], bool] = lambda: False
    ) -> RecordBatches:
        """Batches behind `after` as they come, and a heartbeat when none came for a while.

        Ends after the stream's last tuple, when the outlet closes, once `gone()` is true, or when
        `consumer` follows anew: it has lost this connection, which may not have noticed yet.
        """
        watermark = None
        me = self._followers[consumer] = object()
        if consumer in self._leases:
            self._leases[consumer] = math.inf
        try:
            while not gone():
                batch = self._next(consumer, after, watermark, me)
                if batch is None:
                    return
                self._tell_room()
                yield batch
                after, watermark = batch.last, batch.watermark
                if watermark == END_WATERMARK:
                    return
        finally:
            if consumer in self._leases and self._followers[consumer] is me:
                self._leases[consumer] = time.monotonic()

    def _next(
        self, consumer: str, after: int, told: int | None, me: object
    ) -> Batch[pa.RecordBatch] | None:
        """The next batch, or after a heartbeat interval an empty one with the watermark; None when
        there is nobody to send to any more."""
        with self._changed:
            batch = self._outlet.read(after)
            if batch is None and self._outlet.watermark == told and not self._closed:
                self._changed.wait(self._heartbeat_s)
                batch = self._outlet.read(after)
            if self._closed or self._followers[consumer] is not me:
                return None
            batch = self._heartbeat(after) if batch is None else self._newest(batch)
            self._outlet.sent(consumer, batch.last)
            return batch

    def _newest(self, batch: Batch[pa.RecordBatch]) -> Batch[pa.RecordBatch]:
        """What can be said of a batch only when it is sent: whether another follows, or else the
        watermark reached since it was appended."""
        if batch.last < self._outlet.last:
            return replace(batch, more=True)
        return replace(batch, watermark=self._outlet.watermark)

    def _heartbeat(self, after: int) -> Batch[pa.RecordBatch]:
        outlet = self._outlet
        return Batch(self.stream, after + 1, outlet.watermark, outlet.epoch, self._nothing)

    def _tell_room(self) -> None:
        """Call `on_room` once whenever sending has made room again."""
        with self._changed:
            room = self._outlet.unsent_bytes() < self._limit
            appeared, self._had_room = room and not self._had_room, room
            if appeared:
                self._changed.notify_all()
        if appeared:
            self.on_room()
