"""An outlet with threads around it: one producer appends, any number of readers follow."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from anabranch.errors import SiteError
from anabranch.link.meter import Meter
from anabranch.link.shipment import Traffic, whole
from anabranch.link.wire import empty_batch
from anabranch.stream.batch import END_WATERMARK, Batch
from anabranch.stream.outlet import Outlet
from anabranch.stream.restart import Points, RestartPoint

RecordBatches = Iterator[Batch[pa.RecordBatch]]
Gone = Callable[[], bool]


class LiveOutlet:
    """Bounded: `room` is False while the slowest consumer has `limit` bytes still to be sent.

    `on_room` is called when room appears, `on_ack` with the position up to which no consumer needs
    anything; both without the lock held, from the thread that caused them.

    While `standing_by` nobody is served: the stream's primary is elsewhere, and its consumers'
    acks say what need not be kept here either.
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
        self._changed = threading.Condition(threading.RLock())
        self._closed = False
        self._had_room = True
        self.standing_by = False
        self.traffic = Traffic()
        self._meter = Meter()
        self._followers: dict[str, object] = {}
        self._shippers: dict[str, object] = {}
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
            before, last, size = self._outlet.watermark, self._outlet.last, 0
            for data in batches:
                self._outlet.append(data, before)
                size += data.nbytes
            self._meter.appended(time.monotonic(), self._outlet.last - last, size)
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
            return self.standing_by or self._outlet.unsent_bytes() < self._limit

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

    @property
    def epoch(self) -> int:
        return self._outlet.epoch

    def start_at(self, position: int) -> None:
        """The next tuple is the one behind `position`: before anything is appended, or when all
        that was is forgotten."""
        with self._changed:
            before = self._outlet
            self._outlet = Outlet(self.stream, position, before.epoch, whole=before.whole)
            self._outlet.consumers = before.consumers  # some were quick to come back

    def reign(self, epoch: int, *, standing_by: bool = False) -> None:
        """Produce the stream in `epoch`, or stand by to do so."""
        with self._changed:
            self._outlet.epoch = epoch
            self.standing_by = standing_by
            self._changed.notify_all()

    def attach(
        self,
        consumer: str,
        *,
        after: int | None = None,
        point: RestartPoint | None = None,
        epoch: int = 0,
        lease: bool = False,
    ) -> int:
        """With a `lease` it is detached when it does not follow for long; see `expire`."""
        with self._changed:
            if lease:
                self._leases[consumer] = time.monotonic()
            return self._outlet.attach(consumer, after=after, point=point, epoch=epoch)

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

    def detach(self, consumer: str, epoch: int | None = None) -> None:
        """Keep nothing for it any more; if an `epoch` is given, only if no later one rules."""
        with self._changed:
            known = self._outlet.consumers.get(consumer)
            if known and epoch is not None and epoch < known.epoch:
                return
            self._leases.pop(consumer, None)
            self._outlet.detach(consumer)
            acknowledged = self._outlet.acknowledged()
            self._changed.notify_all()
        self.on_room()
        self.on_ack(acknowledged)

    def level0(self, consumer: str, position: int, epoch: int, reign: int = 0) -> None:
        with self._changed:
            self._outlet.level0(consumer, position, epoch, reign)

    def level1(
        self, consumer: str, input_position: int, point: RestartPoint, reign: int = 0
    ) -> None:
        with self._changed:
            known = self._outlet.consumers.get(consumer)
            before = known.released if known else 0
            self._outlet.level1(consumer, input_position, point, reign)
            if known and known.backup and known.released > before:
                last = self._outlet.last
                self._meter.released(time.monotonic(), consumer, last - known.released, last)
            acknowledged = self._outlet.acknowledged()
        self._tell_room()
        self.on_ack(acknowledged)

    def claim(self, consumer: str, epoch: int) -> tuple[int, RestartPoint | None, int]:
        """The task that consumes as `consumer` is now the one of `epoch`: what was released on the
        word of the one before, its restart point, and how far it was sent. Raises Superseded if it
        comes too late."""
        with self._changed:
            if self.standing_by:
                raise SiteError(f"this site stands by for stream {self.stream}")
            self._outlet.rule(consumer, epoch)
            self._followers.pop(consumer, None)
            self._changed.notify_all()
            return (*self.standing(consumer), self._outlet.consumers[consumer].sent)

    def standing(self, consumer: str) -> tuple[int, RestartPoint | None]:
        """What was released for a consumer, and where it would restart."""
        with self._changed:
            known = self._outlet.consumers.get(consumer)
            if known is None:
                raise SiteError(f"stream {self.stream} keeps nothing for {consumer}")
            return max(known.released, self._outlet.released), known.restart

    def readers(self) -> dict[str, RestartPoint]:
        """Where the consumers would restart."""
        with self._changed:
            return self._outlet.readers()

    def learn(self, readers: Points) -> None:
        """What consumers have told another outlet of the stream."""
        with self._changed:
            self._outlet.learn(readers)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def follow(
        self, consumer: str, after: int, gone: Gone = lambda: False, epoch: int = 0
    ) -> RecordBatches:
        """Batches behind `after` as they come, and a heartbeat when none came for a while.

        Ends after the stream's last tuple, when the outlet closes, once `gone()` is true, or when
        `consumer` follows anew: it has lost this connection, which may not have noticed yet.
        Raises Superseded if the consumer's task of `epoch` has been replaced.
        """
        watermark = None
        with self._changed:
            if self.standing_by:
                raise SiteError(f"this site stands by for stream {self.stream}")
            self._outlet.rule(consumer, epoch)
            me = self._followers[consumer] = object()
        if consumer in self._leases:
            self._leases[consumer] = math.inf
        try:
            while not gone():
                batch = self._next(consumer, after, watermark, me, gone)
                if batch is None:
                    return
                self._tell_room()
                self.traffic.sent(batch)
                yield batch
                after, watermark = batch.last, batch.watermark
                if watermark == END_WATERMARK:
                    return
        finally:
            if consumer in self._leases and self._followers.get(consumer) is me:
                self._leases[consumer] = time.monotonic()

    def ship(
        self, consumer: str, after: int, epoch: int, batch: int, gone: Gone = lambda: False
    ) -> RecordBatches:
        """For the standby of `consumer`, which has all up to `after`: what is not yet released, in
        batches; and when there is none for a while, the newest restart point.

        Raises Superseded when the standby has been replaced, or is the primary now."""
        with self._changed:
            if self.standing_by:
                raise SiteError(f"this site stands by for stream {self.stream}")
            self._outlet.back_up(consumer, epoch, batch, after)
            me = self._shippers[consumer] = object()
        while not gone():
            batch_or_beat = self._next_shipment(consumer, after, epoch, me)
            if batch_or_beat is None:
                return
            yield batch_or_beat
            after = batch_or_beat.last

    def ship_here(
        self, consumer: str, after: int, epoch: int, batch: int, gone: Gone
    ) -> RecordBatches:
        """To a standby at our own site: nothing goes over the wire."""
        for shipped in self.ship(consumer, after, epoch, batch, gone):
            self.traffic.shipped_as(shipped, 0)
            yield shipped

    def _next_shipment(
        self, consumer: str, after: int, epoch: int, me: object
    ) -> Batch[pa.RecordBatch] | None:
        """None when there is nobody to ship to any more: an old connection must not take what the
        one that replaced it will miss."""
        deadline = time.monotonic() + self._heartbeat_s
        with self._changed:
            while True:
                if self._closed or self._shippers.get(consumer) is not me:
                    return None
                shipment = self._outlet.due(consumer, epoch)
                if shipment is not None or time.monotonic() >= deadline:
                    break
                self._changed.wait(max(0.001, deadline - time.monotonic()))
            if shipment is None:
                watermark, point = self._outlet.heartbeat(consumer)
                return replace(self._heartbeat(after), watermark=watermark, point=point)
        return whole(shipment)

    def batch_by(self, consumer: str, epoch: int, batch: int) -> None:
        """Ship in batches of this size from now on, if it is still that standby's turn."""
        with self._changed:
            known = self._outlet.consumers.get(consumer)
            if known and known.backup and known.backup.epoch == epoch:
                known.backup.batch = batch
                self._changed.notify_all()

    def measured(self, consumer: str) -> dict[str, Any]:
        """What the cost of a consumer's standby depends on; empty while too little is known."""
        with self._changed:
            found = self._meter.report(time.monotonic(), consumer)
        return found | {"ratio": self.traffic.ratio or 1.0} if found else found

    def _next(
        self, consumer: str, after: int, told: int | None, me: object, gone: Gone
    ) -> Batch[pa.RecordBatch] | None:
        """The next batch, or after a heartbeat interval an empty one with the watermark; None when
        there is nobody to send to any more. One that died while we waited for a batch was not sent
        it: who takes over has not to catch up with that."""
        with self._changed:
            batch = self._outlet.read(after)
            if batch is None and self._outlet.watermark == told and not self._closed:
                self._changed.wait(self._heartbeat_s)
                batch = self._outlet.read(after)
            if self._closed or gone() or self._followers.get(consumer) is not me:
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
