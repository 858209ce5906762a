"""A site's outlet: one producer appends, any number of consumers are served."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Generic, Protocol

from anabranch.errors import CannotResume, SiteError
from anabranch.link.meter import Flow, Lag, Meter, Traffic
from anabranch.link.reports import SpilledReport
from anabranch.link.serving import Serving
from anabranch.link.store import KeptLog, OutletStore, Payloads, Shelves
from anabranch.log.stream_log import StreamLog
from anabranch.plan.keep import Past
from anabranch.runtime.base import Runtime
from anabranch.runtime.pipe import Outgoing
from anabranch.stream.batch import END_WATERMARK, P
from anabranch.stream.outlet import Outlet
from anabranch.stream.restart import Points, RestartPoint

LOOK_S = 0.1
"""How often a producer that waits looks whether it is to stop."""


class Stopped(Protocol):
    """What we need of a thread's Event."""

    def is_set(self) -> bool: ...


class Producer(Protocol):
    """The task that appends."""

    def room_appeared(self) -> None: ...

    def acknowledge(self, position: int) -> None:
        """Takes note that no consumer needs anything up to `position` any more."""


class LiveOutlet(Generic[P]):
    """Bounded: there is no `room` while a consumer has `limit` bytes still to be sent. What is kept
    beyond what memory may have goes to the `shelves`. As long as these take it, it is the quickest
    of those that follow which is waited for, and nobody if none does: the others read later what
    is on the disk. Without shelves, or when they are full, the slowest is waited for.

    What has a `record` is there for those who come later: nobody is waited for but the disk, and
    its producer need not give again what is written.

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
        shelves: Shelves | None = None,
        record: KeptLog | None = None,
    ) -> None:
        """`whole`: everything is kept in memory, whoever comes late."""
        self.stream = stream
        self.schema = payloads.schema
        self._producer: Producer | None = None
        self._runtime = runtime
        self._record = record
        held = record.log.begin if record else 0 if whole else None
        outlet: Outlet[P] = Outlet(stream, record.log.last if record else 0, epoch, held=held)
        self._store: OutletStore[P] = OutletStore(
            runtime, outlet, payloads, shelves, self._stored, record
        )
        self._serving: Serving[P] = Serving(
            runtime, self._store, payloads, heartbeat_s, self._tell_room
        )
        self._changed = self._store.changed
        self._limit = limit
        self._had_room = True
        self.standing_by = False
        self.waits_for_absent = False
        """The producer waits as well while nobody follows: it has no reason to go on."""
        self._meter = Meter()
        self._lags: dict[str, Lag] = {}
        """Consumers that are behind what is in memory."""
        self._given: int | None = None
        self._returned: dict[str, int] = {}
        """Consumers that have followed this outlet → what they had then."""

    @property
    def _outlet(self) -> Outlet[P]:
        return self._store.outlet

    @property
    def traffic(self) -> Traffic:
        return self._serving.traffic

    def produced_by(self, producer: Producer | None) -> None:
        """Sets who hears of room and acks from now on."""
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
        """Whether somebody reads it, or will."""
        with self._runtime:
            return self._outlet.wanted

    def kept(self) -> tuple[int, int]:
        """The tuples and bytes that are kept for consumers."""
        with self._runtime:
            outlet = self._outlet
            if self._record:
                return outlet.last - outlet.acknowledged(), outlet.memory_bytes
            return outlet.last - outlet.released, outlet.kept_bytes

    @property
    def settled(self) -> int:
        """Nobody asks the producer again for anything up to there."""
        return self._store.settled

    @property
    def log(self) -> StreamLog | None:
        """What is written for those who come later, and outlives the process."""
        return self._record.log if self._record else None

    @property
    def disk_bytes(self) -> int:
        """The bytes that are kept on the disk."""
        return self._store.disk_bytes

    def spilled(self) -> SpilledReport | None:
        """What is on the disk, if anything, and who has not been sent it."""
        with self._runtime:
            outlet, now = self._outlet, self._runtime.now()
            behind = {
                name: outlet.last - one.sent
                for name, one in outlet.consumers.items()
                if max(one.sent, one.released) < outlet.in_memory_after
            }
            self._lags = {name: self._lags.get(name, Lag()) for name in behind}
            for name, one in self._lags.items():
                one.see(now, behind[name])
        if not self._store.disk_bytes:
            return None
        left = {name: one.left_s for name, one in self._lags.items()}
        left_s = {name: round(s, 1) for name, s in left.items() if s is not None}
        keep = str(self._record.keep) if self._record else ""
        return SpilledReport(self._store.disk_bytes, behind, left_s, keep)

    def append(self, batches: Iterable[P], watermark: int) -> int:
        """Adds the batches; `watermark` holds after the last of them. Returns the last position."""
        with self._runtime:
            before, last, size = self._outlet.watermark, self._outlet.last, 0
            for data in batches:
                size += self._outlet.append(data, before).nbytes
            self._meter.appended(self._runtime.now(), self._outlet.last - last, size)
            self._outlet.advance(watermark)
            self._store.look()
            self._had_room = self._has_room()
            self._changed.notify()
            return self._outlet.last

    def end(self) -> None:
        """Ends the stream: no tuple will follow. Calling it again does no harm."""
        with self._runtime:
            self._outlet.advance(END_WATERMARK)
            self._changed.notify()

    def room(self) -> bool:
        with self._runtime:
            return self.standing_by or self._has_room()

    def _has_room(self) -> bool:
        outlet = self._outlet
        if self._record:
            return self._store.takes(self._limit)
        if not self._store.spills:
            return outlet.unsent_bytes() < self._limit
        if self._store.falls_behind:
            return False
        absent_too = self.waits_for_absent
        waited_for = outlet.consumers if absent_too else self._serving.there()
        return outlet.unsent_to_quickest(waited_for) < self._limit

    def wait_for_room(self, stopped: Stopped, timeout_s: float = math.inf) -> bool:
        """Called from a producer's thread: waits until there is room; False if `stopped` is set,
        the outlet closed or the time is over first.
        """
        deadline = self._runtime.now() + timeout_s
        while not (self._serving.closed or stopped.is_set()):
            if self.room():
                return True
            if self._runtime.run(self.room_within(LOOK_S)):
                return True
            if self._runtime.now() >= deadline:
                return False
        return False

    async def room_within(self, seconds: float) -> bool:
        """Whether there is room, now or within this time."""
        if not (self._serving.closed or self.room()):
            await self._changed.wait(seconds)
        return not self._serving.closed and self.room()

    @property
    def epoch(self) -> int:
        return self._outlet.epoch

    def start_at(self, position: int, given: int | None = None) -> None:
        """Sets the next tuple to be the one after `position`. Call it before anything is appended,
        or when all that was is forgotten. Up to `given` tuples may have been given by another
        outlet of the stream, as far as our producer knows.
        """
        with self._runtime:
            self._given = given
            before = self._outlet
            if self._record:
                self._must_reach(self._record.log, position)
            outlet: Outlet[P] = Outlet(self.stream, position, before.epoch, held=before.held)
            outlet.consumers = before.consumers  # some were quick to come back
            self._store.begin(outlet)

    def _must_reach(self, log: StreamLog, position: int) -> None:
        """Whoever goes on after a position has said so because the log had all up to there."""
        if log.last < position:
            raise CannotResume(
                f"stream {self.stream} is to go on after position {position}, but its log ends"
                f" with {log.last}",
                place=log.place,
                remedy="Restore the folder, or drop the stream and create it again.",
            )

    def ahead(self) -> tuple[str, int, int] | None:
        """A consumer that came with more tuples than our producer knows to have given, how many it
        has, and how many the producer knows of. The next tuples are not the ones that this consumer
        had.
        """
        with self._runtime:
            if self._given is not None:
                for consumer, had in self._returned.items():
                    if had > self._given:
                        return consumer, had, self._given
        return None

    def _meet(self, consumer: str, after: int) -> None:
        """Raises SiteError for a consumer that is ahead: it waits, and keeps what it has."""
        self._returned.setdefault(consumer, after)
        if self._given is not None and self._returned[consumer] > self._given:
            raise SiteError(
                f"stream {self.stream} knows of {self._given} tuples, and {consumer} has had"
                f" {self._returned[consumer]}"
            )

    def produce_in(self, epoch: int, *, standing_by: bool = False) -> None:
        """Produces the stream in `epoch`, or stands by to do so."""
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
        """Attaches the consumer. With a `lease` it is detached when it does not follow for long;
        see `expire`.
        """
        with self._runtime:
            if lease:
                self._serving.lease(consumer)
            before = self._outlet.consumers.get(consumer)
            if after is None and before is None:
                self._returned[consumer] = 0  # it is new
            start = self._outlet.attach(consumer, after=after, point=point, epoch=epoch, born=born)
            if before and self._outlet.consumers[consumer] is not before:  # those go no further
                self._serving.end_serving(consumer)
                self._changed.notify()
            return start

    def knows(self, consumer: str, born: int) -> bool:
        """Tuples are kept for it already."""
        known = self._outlet.consumers.get(consumer)
        return known is not None and not 0 < known.born < born

    async def find(self, past: Past) -> int:
        """The position after which a reader begins that asks for the past. Raises ConfigError if
        what it asks for is not kept.
        """
        return await self._store.find(past)

    @property
    def leased(self) -> tuple[str, ...]:
        with self._runtime:
            return self._serving.leased

    def tasks(self) -> list[str]:
        """The consumers that are tasks: all that hold no lease."""
        with self._runtime:
            return [one for one in self._outlet.consumers if one not in self._serving.leased]

    def look(self, lease_s: float) -> None:
        """Called now and then: detaches programs that have gone without saying so, because nobody
        else would; and waits no more for silent consumers.
        """
        with self._runtime:
            gone = self._serving.expired(lease_s)
            self._store.look()
        for consumer in gone:
            self.detach(consumer)
        self._tell_room()

    def detach(self, consumer: str, epoch: int | None = None, born: int = 0) -> None:
        """Keeps nothing for it any more; if an `epoch` or a creation is given, only if no later one
        consumes.
        """
        with self._runtime:
            known = self._outlet.consumers.get(consumer)
            if known and epoch is not None and epoch < known.epoch:
                return
            if known and 0 < born < known.born:
                return
            self._serving.end_lease(consumer)
            self._outlet.detach(consumer)
            self._store.look()
            settled = self._store.settled
            self._changed.notify()
        if self._producer:
            self._producer.room_appeared()
            self._producer.acknowledge(settled)

    def level0(self, consumer: str, position: int, epoch: int, own: int = 0, born: int = 0) -> None:
        with self._runtime:
            self._serving.heard(consumer)
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
            self._serving.heard(consumer)
            self._store.look()
            if known and known.backup and before < known.released <= self._outlet.last:
                last = self._outlet.last
                self._meter.released(self._runtime.now(), consumer, last - known.released, last)
            settled = self._store.settled
        self._tell_room()
        if self._producer:
            self._producer.acknowledge(settled)

    def claim(self, consumer: str, epoch: int) -> tuple[int, RestartPoint | None, int]:
        """Claims the consumer for its task of `epoch`. Returns what was released on the word of the
        task before, that task's restart point, and how far it was sent. Raises Superseded if it
        comes too late.
        """
        with self._runtime:
            self._must_serve()
            self._outlet.fence(consumer, epoch)
            self._serving.end_following(consumer)
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
        """The points where the consumers would restart."""
        with self._runtime:
            return self._outlet.readers()

    def learn(self, readers: Points) -> None:
        """Learns what consumers have told another outlet of the stream."""
        with self._runtime:
            self._outlet.learn(readers)

    def close(self) -> None:
        with self._runtime:
            self._serving.closed = True
            self._store.close()

    async def rest(self) -> None:
        """Called after `close`: nothing is written any more."""
        await self._store.rest()

    # -- serving ---------------------------------------------------------------------------------

    async def follow(
        self, out: Outgoing[P], consumer: str, after: int, epoch: int = 0, born: int = 0
    ) -> None:
        """Sends `consumer` what lies after `after`; see `Serving.follow`. Ends with Superseded if
        its task of `epoch` has been replaced.
        """

        def check() -> None:
            self._must_serve()
            self._outlet.fence(consumer, epoch, born)
            self._meet(consumer, after)

        await self._serving.follow(out, consumer, after, check)

    async def ship(
        self, out: Outgoing[P], consumer: str, after: int, epoch: int, batch: int
    ) -> None:
        """Sends the standby of `consumer` what lies after `after`; see `Serving.ship`."""

        def check() -> None:
            self._must_serve()
            self._outlet.back_up(consumer, epoch, batch, after)
            self._meet(consumer, after)

        await self._serving.ship(out, consumer, after, epoch, check)

    def _must_serve(self) -> None:
        if self.standing_by:
            raise SiteError(f"this site stands by for stream {self.stream}")

    def batch_by(self, consumer: str, epoch: int, batch: int) -> None:
        """Ships in batches of this size from now on, if it is still that standby's turn."""
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

    def _stored(self) -> None:
        """The disk has taken something, or could not."""
        self._tell_room()
        if self._record and self._producer:
            self._producer.acknowledge(self._store.settled)

    def _tell_room(self) -> None:
        """Tells the producer once whenever sending has made room again."""
        with self._runtime:
            room = self._has_room()
            appeared, self._had_room = room and not self._had_room, room
            if appeared:
                self._changed.notify()
        if appeared and self._producer:
            self._producer.room_appeared()
