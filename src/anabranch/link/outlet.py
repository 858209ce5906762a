"""An outlet as a site has it: one producer appends, any number of consumers are served."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Generic, Protocol

from anabranch.errors import AnabranchError, SiteError
from anabranch.link.meter import Flow, Meter
from anabranch.link.shipment import Traffic
from anabranch.runtime.base import Runtime
from anabranch.runtime.pipe import Outgoing
from anabranch.stream.batch import END_WATERMARK, Batch, P
from anabranch.stream.outlet import Outlet, Shipment
from anabranch.stream.restart import Points, RestartPoint

LOOK_S = 0.1
"""How often a producer that waits looks whether it is to stop."""


class Stopped(Protocol):
    """A thread's Event."""

    def is_set(self) -> bool: ...


class Producer(Protocol):
    """The task that appends."""

    def room_appeared(self) -> None: ...

    def acknowledge(self, position: int) -> None:
        """No consumer needs anything up to `position` any more."""


class Payloads(Protocol[P]):
    """What the batches of a stream carry."""

    @property
    def nothing(self) -> P:
        """Without a row."""

    @property
    def schema(self) -> Any: ...

    def joined(self, parts: Sequence[P]) -> P:
        """All rows as one."""


class LiveOutlet(Generic[P]):
    """Bounded: `room` is False while the slowest consumer has `limit` bytes still to be sent.

    Its `producer`, if it wants to hear of room and acks, says so by `produced_by`. Producers append
    from threads of their own; all else is asked by coroutines.

    While `standing_by` nobody is served: the stream's primary is elsewhere, and its consumers'
    acks say what need not be kept here either.
    """

    def __init__(
        self,
        runtime: Runtime,
        stream: str,
        payloads: Payloads[P],
        *,
        limit: int,
        heartbeat_s: float,
        epoch: int = 0,
        whole: bool = False,
    ) -> None:
        self.stream = stream
        self.schema = payloads.schema
        self._producer: Producer | None = None
        self._runtime = runtime
        self._payloads = payloads
        self._outlet: Outlet[P] = Outlet(stream, epoch=epoch, whole=whole)
        self._limit = limit
        self._heartbeat_s = heartbeat_s
        self._changed = runtime.signal()
        self._closed = False
        self._had_room = True
        self.standing_by = False
        self.traffic = Traffic()
        self._meter = Meter()
        self._followers: dict[str, object] = {}
        self._shippers: dict[str, object] = {}
        self._leases: dict[str, float] = {}
        """Since when consumers with a lease do not follow; those that do have `inf`."""
        self._given: int | None = None
        self._returned: dict[str, int] = {}
        """Consumers that have followed this outlet → what they had then."""

    def produced_by(self, producer: Producer | None) -> None:
        """Who hears of room and acks from now on."""
        self._producer = producer

    @property
    def last(self) -> int:
        return self._outlet.last

    @property
    def watermark(self) -> int:
        return self._outlet.watermark

    @property
    def released(self) -> int:
        return self._outlet.released

    @property
    def ended(self) -> bool:
        return self._outlet.ended

    @property
    def consumers(self) -> tuple[str, ...]:
        with self._runtime:
            return tuple(self._outlet.consumers)

    @property
    def wanted(self) -> bool:
        """Somebody reads it, or will."""
        with self._runtime:
            return self._outlet.wanted

    def kept(self) -> tuple[int, int]:
        """Tuples and bytes kept for consumers."""
        with self._runtime:
            return self._outlet.last - self._outlet.released, self._outlet.kept_bytes

    def append(self, batches: Iterable[P], watermark: int) -> int:
        """Add the batches, the watermark behind the last of them; returns the last position."""
        with self._runtime:
            before, last, size = self._outlet.watermark, self._outlet.last, 0
            for data in batches:
                size += self._outlet.append(data, before).nbytes
            self._meter.appended(self._runtime.now(), self._outlet.last - last, size)
            self._outlet.advance(watermark)
            self._had_room = self._outlet.unsent_bytes() < self._limit
            self._changed.notify()
            return self._outlet.last

    def end(self) -> None:
        """No tuple will follow. Idempotent."""
        with self._runtime:
            self._outlet.advance(END_WATERMARK)
            self._changed.notify()

    def room(self) -> bool:
        with self._runtime:
            return self.standing_by or self._outlet.unsent_bytes() < self._limit

    def wait_for_room(self, stopped: Stopped, timeout_s: float = math.inf) -> bool:
        """For a producer's thread: until there is room; False if `stopped` is set, the outlet
        closed or the time is over first."""
        deadline = self._runtime.now() + timeout_s
        while not (self._closed or stopped.is_set()):
            if self.room():
                return True
            if self._runtime.run(self.room_within(LOOK_S)):
                return True
            if self._runtime.now() >= deadline:
                return False
        return False

    async def room_within(self, seconds: float) -> bool:
        """Whether there is room, now or after so long at most."""
        if not (self._closed or self.room()):
            await self._changed.wait(seconds)
        return not self._closed and self.room()

    @property
    def epoch(self) -> int:
        return self._outlet.epoch

    def start_at(self, position: int, given: int | None = None) -> None:
        """The next tuple is the one behind `position`: before anything is appended, or when all
        that was is forgotten. Up to `given` tuples may have been given by another outlet of the
        stream, as far as our producer knows."""
        with self._runtime:
            self._given = given
            before = self._outlet
            self._outlet = Outlet(self.stream, position, before.epoch, whole=before.whole)
            self._outlet.consumers = before.consumers  # some were quick to come back

    def ahead(self) -> tuple[str, int, int] | None:
        """A consumer that came with more tuples than our producer knows to have been given, how
        many, and how many it knows of. What follows here is not what that consumer had."""
        with self._runtime:
            if self._given is not None:
                for consumer, had in self._returned.items():
                    if had > self._given:
                        return consumer, had, self._given
        return None

    def _meet(self, consumer: str, after: int) -> None:
        """Raises SiteError for one that is ahead: it waits, and keeps what it has."""
        self._returned.setdefault(consumer, after)
        if self._given is not None and self._returned[consumer] > self._given:
            raise SiteError(
                f"stream {self.stream} knows of {self._given} tuples, and {consumer} has had"
                f" {self._returned[consumer]}"
            )

    def produce_in(self, epoch: int, *, standing_by: bool = False) -> None:
        """Produce the stream in `epoch`, or stand by to do so."""
        with self._runtime:
            self._outlet.epoch = epoch
            self.standing_by = standing_by
            self._changed.notify()

    def attach(
        self,
        consumer: str,
        *,
        after: int | None = None,
        point: RestartPoint | None = None,
        epoch: int = 0,
        born: int = 0,
        lease: bool = False,
    ) -> int:
        """With a `lease` it is detached when it does not follow for long; see `expire`."""
        with self._runtime:
            if lease:
                self._leases[consumer] = self._runtime.now()
            before = self._outlet.consumers.get(consumer)
            if after is None and before is None:
                self._returned[consumer] = 0  # it is new
            start = self._outlet.attach(consumer, after=after, point=point, epoch=epoch, born=born)
            if before and self._outlet.consumers[consumer] is not before:  # those go no further
                self._followers.pop(consumer, None)
                self._shippers.pop(consumer, None)
                self._changed.notify()
            return start

    @property
    def leased(self) -> tuple[str, ...]:
        with self._runtime:
            return tuple(self._leases)

    def tasks(self) -> list[str]:
        """The consumers that are tasks: all that hold no lease."""
        with self._runtime:
            return [one for one in self._outlet.consumers if one not in self._leases]

    def expire(self, lease_s: float) -> None:
        """Detach programs that have gone without saying so: nobody else would ever."""
        with self._runtime:
            gone = [one for one, since in self._leases.items()
                    if self._runtime.now() - since > lease_s]  # fmt: skip
        for consumer in gone:
            self.detach(consumer)

    def detach(self, consumer: str, epoch: int | None = None, born: int = 0) -> None:
        """Keep nothing for it any more; if an `epoch` or a creation is given, only if no later one
        consumes."""
        with self._runtime:
            known = self._outlet.consumers.get(consumer)
            if known and epoch is not None and epoch < known.epoch:
                return
            if known and 0 < born < known.born:
                return
            self._leases.pop(consumer, None)
            self._outlet.detach(consumer)
            acknowledged = self._outlet.acknowledged()
            self._changed.notify()
        if self._producer:
            self._producer.room_appeared()
            self._producer.acknowledge(acknowledged)

    def level0(self, consumer: str, position: int, epoch: int, own: int = 0, born: int = 0) -> None:
        with self._runtime:
            self._outlet.level0(consumer, position, epoch, own, born)

    def level1(
        self,
        consumer: str,
        input_position: int,
        point: RestartPoint,
        own: int = 0,
        born: int = 0,
    ) -> None:
        with self._runtime:
            known = self._outlet.consumers.get(consumer)
            before = known.released if known else 0
            self._outlet.level1(consumer, input_position, point, own, born)
            if known and known.backup and before < known.released <= self._outlet.last:
                last = self._outlet.last
                self._meter.released(self._runtime.now(), consumer, last - known.released, last)
            acknowledged = self._outlet.acknowledged()
        self._tell_room()
        if self._producer:
            self._producer.acknowledge(acknowledged)

    def claim(self, consumer: str, epoch: int) -> tuple[int, RestartPoint | None, int]:
        """The task that consumes as `consumer` is now the one of `epoch`: what was released on the
        word of the one before, its restart point, and how far it was sent. Raises Superseded if it
        comes too late."""
        with self._runtime:
            self._must_serve()
            self._outlet.fence(consumer, epoch)
            self._followers.pop(consumer, None)
            self._changed.notify()
            return (*self.consumer_state(consumer), self._outlet.consumers[consumer].sent)

    def consumer_state(self, consumer: str) -> tuple[int, RestartPoint | None]:
        """What was released for a consumer, and where it would restart."""
        with self._runtime:
            known = self._outlet.consumers.get(consumer)
            if known is None:
                raise SiteError(f"stream {self.stream} keeps nothing for {consumer}")
            return max(known.released, self._outlet.released), known.restart

    def readers(self) -> dict[str, RestartPoint]:
        """Where the consumers would restart."""
        with self._runtime:
            return self._outlet.readers()

    def learn(self, readers: Points) -> None:
        """What consumers have told another outlet of the stream."""
        with self._runtime:
            self._outlet.learn(readers)

    def close(self) -> None:
        with self._runtime:
            self._closed = True
            self._changed.notify()

    # -- serving ---------------------------------------------------------------------------------

    async def follow(
        self, out: Outgoing[P], consumer: str, after: int, epoch: int = 0, born: int = 0
    ) -> None:
        """Send batches behind `after` as they come, and a heartbeat when none came for a while.

        Ends after the stream's last tuple, when the outlet closes, once `out` is gone, or when
        `consumer` follows anew: it has lost this connection, which may not have noticed yet. What
        ends it otherwise, `out` is ended with: Superseded if the consumer's task of `epoch` has
        been replaced, Gap if tuples behind `after` were released.
        """
        me = object()
        try:
            self._must_serve()
            self._outlet.fence(consumer, epoch, born)
            self._meet(consumer, after)
            self._followers[consumer] = me
            if consumer in self._leases:
                self._leases[consumer] = math.inf
            await self._follow(out, consumer, after, me)
            out.end()
        except AnabranchError as error:
            out.end(error)
        except Exception:  # a bug is counted; whoever reads is not left waiting, and tries again
            out.end(SiteError(f"stream {self.stream} could not be sent on"))
            raise
        finally:
            if consumer in self._leases and self._followers.get(consumer) is me:
                self._leases[consumer] = self._runtime.now()

    async def _follow(self, out: Outgoing[P], consumer: str, after: int, me: object) -> None:
        told = None
        while told != END_WATERMARK:
            batch = await self._next(out, consumer, after, told, me)
            if batch is None:
                return
            self._outlet.sent(consumer, batch.last)
            self._tell_room()
            self.traffic.sent(batch)
            if not await out.send(batch):
                return
            after, told = batch.last, batch.watermark

    async def _next(
        self, out: Outgoing[P], consumer: str, after: int, told: int | None, me: object
    ) -> Batch[P] | None:
        """The next batch, or after a heartbeat interval an empty one with the watermark; None when
        there is nobody to send to any more. One that died while we waited for a batch was not sent
        it: who takes over has not to catch up with that."""
        deadline = self._runtime.now() + self._heartbeat_s
        while True:
            if self._closed or out.gone or self._followers.get(consumer) is not me:
                return None
            batch = self._outlet.read(after)
            if batch is not None:
                return self._newest(batch)
            left = deadline - self._runtime.now()
            if self._outlet.watermark != told or left <= 0:
                return self._heartbeat(after)
            await self._changed.wait(left)

    async def ship(
        self, out: Outgoing[P], consumer: str, after: int, epoch: int, batch: int
    ) -> None:
        """For the standby of `consumer`, which has all up to `after`: what is not yet released, in
        batches; and when there is none for a while, the newest restart point.

        Ends with Superseded when the standby has been replaced, or is the primary now."""
        me = object()
        try:
            self._must_serve()
            self._outlet.back_up(consumer, epoch, batch, after)
            self._meet(consumer, after)
            self._shippers[consumer] = me
            while shipped := await self._next_shipment(out, consumer, after, epoch, me):
                if not await out.send(shipped):
                    break
                after = shipped.last
            out.end()
        except AnabranchError as error:
            out.end(error)
        except Exception:
            out.end(SiteError(f"stream {self.stream} could not be shipped"))
            raise

    async def _next_shipment(
        self, out: Outgoing[P], consumer: str, after: int, epoch: int, me: object
    ) -> Batch[P] | None:
        """None when there is nobody to ship to any more: an old connection must not take what the
        one that replaced it will miss."""
        deadline = self._runtime.now() + self._heartbeat_s
        while True:
            if self._closed or out.gone or self._shippers.get(consumer) is not me:
                return None
            if shipment := self._outlet.due(consumer, epoch):
                return self._whole(shipment)
            left = deadline - self._runtime.now()
            if left <= 0:
                watermark, point = self._outlet.heartbeat(consumer)
                return replace(self._heartbeat(after), watermark=watermark, point=point)
            await self._changed.wait(left)

    def _whole(self, shipment: Shipment[P]) -> Batch[P]:
        """As one batch: compression and the standby's task fare better with it."""
        newest = shipment.batches[-1]
        data = self._payloads.joined([batch.data for batch in shipment.batches])
        return replace(newest, first=shipment.after + 1, data=data, point=shipment.point)

    def _must_serve(self) -> None:
        if self.standing_by:
            raise SiteError(f"this site stands by for stream {self.stream}")

    def batch_by(self, consumer: str, epoch: int, batch: int) -> None:
        """Ship in batches of this size from now on, if it is still that standby's turn."""
        with self._runtime:
            known = self._outlet.consumers.get(consumer)
            if known and known.backup and known.backup.epoch == epoch:
                known.backup.batch = batch
                self._changed.notify()

    def measured(self, consumer: str) -> Flow | None:
        """What the cost of a consumer's standby depends on; None while nothing comes."""
        with self._runtime:
            found = self._meter.report(self._runtime.now(), consumer)
            known = self._outlet.consumers.get(consumer)
            held = self._outlet.last - known.released if known else 0
        return found and replace(found, ratio=self.traffic.ratio or 1.0, held=max(0, held))

    def _newest(self, batch: Batch[P]) -> Batch[P]:
        """What can be said of the last batch only when it is sent: the watermark reached since it
        was appended."""
        if batch.last < self._outlet.last:
            return batch
        return batch.at(self._outlet.watermark)

    def _heartbeat(self, after: int) -> Batch[P]:
        outlet = self._outlet
        return Batch(self.stream, after + 1, outlet.watermark, outlet.epoch, self._payloads.nothing)

    def _tell_room(self) -> None:
        """Once whenever sending has made room again."""
        with self._runtime:
            room = self._outlet.unsent_bytes() < self._limit
            appeared, self._had_room = room and not self._had_room, room
            if appeared:
                self._changed.notify()
        if appeared and self._producer:
            self._producer.room_appeared()
