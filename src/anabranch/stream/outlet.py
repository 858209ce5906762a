"""Output queue of one stream: numbers tuples, keeps what may still be needed, releases the rest."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Generic

from anabranch.errors import Gap, SiteError, StaleEpoch, Superseded
from anabranch.stream.batch import END_WATERMARK, START_WATERMARK, Batch, P
from anabranch.stream.restart import FOREVER, Points, RestartPoint, told_to


@dataclass(slots=True)
class Backup:
    """What a consumer's standby gets: in batches of `batch` tuples, up to `shipped` so far."""

    epoch: int
    batch: int
    shipped: int


@dataclass(slots=True)
class Consumer:
    """What the outlet knows of one consumer: how far it was sent, has received (Level-0), and no
    longer needs (Level-1), with the restart point that came with the latter.

    `epoch` is that of the task that consumes: whoever ran it before is refused. So is whoever reads
    for a definition that was dropped, if another of its name has been `born` since."""

    sent: int
    received: int
    released: int
    restart: RestartPoint | None = None
    epoch: int = 0
    backup: Backup | None = None
    born: int = 0
    """The creation of the query that it reads for; 0: nobody has said."""

    @property
    def finished(self) -> bool:
        """It has ended before the stream does, and is remembered for whoever asks."""
        return self.released == FOREVER


class Outlet(Generic[P]):
    """Positions are dense from `start + 1`. Without consumers nothing is kept, unless `whole`:
    then everything is, for those who come later."""

    def __init__(self, stream: str, start: int = 0, epoch: int = 0, *, whole: bool = False) -> None:
        self.stream = stream
        self.whole = whole
        self.epoch = epoch
        self.last = start
        self.released = start
        self.watermark = START_WATERMARK
        self.consumers: dict[str, Consumer] = {}
        self._kept: list[Batch[P]] = []
        self._lasts: list[int] = []
        self._ends: list[int] = []  # bytes ever kept, counted up to the end of each kept batch
        self._bytes = 0
        self._released_bytes = 0

    @property
    def ended(self) -> bool:
        return self.watermark == END_WATERMARK

    @property
    def wanted(self) -> bool:
        """Somebody reads it, or will."""
        return any(not one.finished for one in self.consumers.values())

    @property
    def kept_bytes(self) -> int:
        return self._bytes - self._released_bytes

    def append(self, data: P, watermark: int) -> Batch[P]:
        """Number the tuples of `data` and keep them. `watermark` holds behind them."""
        if self.ended:
            raise ValueError(f"stream {self.stream} has ended")
        self.watermark = max(self.watermark, watermark)
        batch = Batch(self.stream, self.last + 1, self.watermark, self.epoch, data)
        if batch.rows:
            self.last = batch.last
            if (self.wanted and batch.last > self.released) or self.whole:
                self._keep(batch)
            else:  # nobody wants it, or a primary ahead of us gave it to all
                self.released = max(self.released, self.last)
        return batch

    def _keep(self, batch: Batch[P]) -> None:
        self._bytes += batch.nbytes
        self._kept.append(batch)
        self._lasts.append(batch.last)
        self._ends.append(self._bytes)

    def advance(self, watermark: int) -> bool:
        """Raise the watermark without a tuple; False if it does not rise."""
        if watermark <= self.watermark:
            return False
        self.watermark = watermark
        return True

    def attach(
        self,
        consumer: str,
        *,
        after: int | None = None,
        point: RestartPoint | None = None,
        epoch: int = 0,
        born: int = 0,
    ) -> int:
        """Keep tuples for `consumer` from now on, or from behind `after` if they are still there;
        returns the position it starts behind. What it told another outlet of the stream goes on
        to hold here: its restart `point`, and the `epoch` before which it is refused. Nothing is
        left of one of that name that was born before. Raises Superseded if it is that itself."""
        known = self._current(consumer, born=born)
        if known is None or 0 < known.born < born:
            # One that has taken over may not have come as far yet as the one before it had.
            start = max(self.released, self.last if after is None else after)
            self.consumers[consumer] = Consumer(start, start, start, point, epoch, born=born)
            return start
        known.born = max(known.born, born)
        return known.received

    def detach(self, consumer: str) -> None:
        self.consumers.pop(consumer, None)
        self._release()

    def read(self, after: int) -> Batch[P] | None:
        """The first kept batch with tuples behind `after`, cut to them; None if there is none yet.

        Raises Gap if tuples behind `after` were released already.
        """
        if after < self.released:
            raise Gap(f"stream {self.stream}: {after + 1} was asked for, {self.released} released")
        index = bisect_right(self._lasts, after)
        return self._kept[index].after(after) if index < len(self._kept) else None

    def sent(self, consumer: str, position: int) -> None:
        if consumer in self.consumers:
            self.consumers[consumer].sent = position

    def unsent_bytes(self) -> int:
        """Bytes the slowest consumer was not sent yet: what back-pressure goes by."""
        # Who needs it no more, perhaps from another producer of the stream, need not be sent it.
        sent = [max(one.sent, one.released) for one in self.consumers.values()]
        if not sent:
            return 0
        slowest = min(sent)
        index = bisect_right(self._lasts, slowest)
        return self._bytes - (self._ends[index - 1] if index else self._released_bytes)

    # -- acks ------------------------------------------------------------------------------------

    def level0(self, consumer: str, position: int, epoch: int, own: int = 0, born: int = 0) -> None:
        """`consumer`, whose task is in its epoch `own`, has received everything up to `position` of
        what the producer in `epoch` sent.

        Raises StaleEpoch if the consumer already follows a later producer than this one,
        Superseded if it has itself been replaced.
        """
        if epoch > self.epoch:
            raise StaleEpoch(
                f"stream {self.stream}: consumer {consumer} is at epoch {epoch}, we at {self.epoch}"
            )
        known = self._current(consumer, own, born)
        if known is not None:
            known.received = max(known.received, position)
            # Perhaps by another producer of the stream: who had its end from that one does not
            # follow us, and must not hold us up.
            known.sent = max(known.sent, position)

    def level1(
        self,
        consumer: str,
        input_position: int,
        point: RestartPoint,
        own: int = 0,
        born: int = 0,
    ) -> int:
        """`consumer` needs nothing up to `input_position` any more and would restart at `point`;
        returns up to where this outlet has now released. An ack overtaken by a newer one changes
        nothing. Raises Superseded as `level0`."""
        known = self._current(consumer, own, born)
        if known is not None and _newer(known, input_position, point):
            known.received = max(known.received, input_position)
            known.released = input_position
            known.restart = point
        self._release()
        return self.released

    def readers(self) -> dict[str, RestartPoint]:
        """Where the consumers that have said so would restart."""
        return {name: one.restart for name, one in self.consumers.items() if one.restart}

    def learn(self, readers: Points) -> None:
        """Another outlet of the stream was told so by these tasks."""
        for name, known in self.consumers.items():
            if point := told_to(name, readers):
                known.restart = point.join(known.restart) if known.restart else point

    def acknowledged(self) -> int:
        """The position up to which no consumer needs anything, however often it restarts.

        What a consumer has merely received is not enough: should it die together with the producer,
        nobody had it any more."""
        needed = (one.released for one in self.consumers.values() if not one.finished)
        return min(needed, default=self.last)

    def _release(self) -> None:
        if self.whole:
            return
        floor = self.acknowledged()
        index = bisect_right(self._lasts, floor)
        if index:
            self._released_bytes = self._ends[index - 1]
            del self._kept[:index], self._lasts[:index], self._ends[:index]
        self.released = max(self.released, floor)

    # -- standby ---------------------------------------------------------------------------------

    def fence(self, consumer: str, epoch: int, born: int = 0) -> Consumer | None:
        """From now on the consumer is the task of `epoch`: those of earlier ones are refused, and
        nothing more is released for them. Raises Superseded if this one is itself too late."""
        known = self._current(consumer, epoch, born)
        if known is not None and epoch > known.epoch:
            known.epoch = epoch
            known.backup = None
        return known

    def _current(self, consumer: str, epoch: int | None = None, born: int = 0) -> Consumer | None:
        known = self.consumers.get(consumer)
        if known is not None and 0 < born < known.born:
            raise Superseded(
                f"stream {self.stream}: {consumer} was dropped; another of that name reads"
            )
        if known is not None and epoch is not None and epoch < known.epoch:
            raise Superseded(
                f"stream {self.stream}: consumer {consumer} of epoch {epoch} was replaced by that"
                f" of epoch {known.epoch}"
            )
        return known

    def back_up(self, consumer: str, epoch: int, batch: int, after: int) -> None:
        """Ship to the standby of `consumer` that would be primary in `epoch` and has all up to
        `after`. Raises Superseded if there is one of a later epoch."""
        known = self.consumers.get(consumer)
        if known is None:
            raise SiteError(f"stream {self.stream} keeps nothing for {consumer}")
        if epoch <= known.epoch or (known.backup and epoch < known.backup.epoch):
            raise Superseded(f"stream {self.stream}: standby of epoch {epoch} was replaced")
        known.backup = Backup(epoch, batch, after)

    def due(self, consumer: str, epoch: int) -> Shipment[P] | None:
        """What the standby gets next: the tuples not released and not shipped, in whole batches.
        None if they are fewer than a batch. Raises Superseded once another standby has come."""
        known = self.consumers.get(consumer)
        if known is None or known.backup is None or known.backup.epoch != epoch:
            raise Superseded(f"stream {self.stream}: standby of epoch {epoch} was replaced")
        backup = known.backup
        start = max(backup.shipped, known.released)
        if start < self.released:  # it began behind; the consumer's next ack says where it stands
            return None
        rows = max(0, self.last - start) // backup.batch * backup.batch
        if not rows:
            return None
        backup.shipped = start + rows
        return Shipment(start, self._cut(start, start + rows), known.restart)

    def heartbeat(self, consumer: str) -> tuple[int, RestartPoint | None]:
        """What a standby that gets no tuples should know: the watermark, if all is shipped that
        lies before it, and the newest restart point. Tuples released before they were shipped are
        not there: without them the watermark would close windows that lack them."""
        known = self.consumers[consumer]
        all_there = known.backup is not None and known.backup.shipped >= self.last
        return self.watermark if all_there else START_WATERMARK, known.restart

    def _cut(self, after: int, last: int) -> list[Batch[P]]:
        """The kept tuples after+1…last. The watermark of one that is cut does not hold yet."""
        found = []
        watermark = START_WATERMARK
        for batch in self._kept[bisect_right(self._lasts, after) :]:
            if batch.first > last:
                break
            part = batch.after(after)
            if part.last > last:
                part = part.head(last - part.first + 1, watermark)
            watermark = part.watermark
            found.append(part)
        return found


@dataclass(frozen=True, slots=True)
class Shipment(Generic[P]):
    """Tuples behind `after` for a standby, and the restart point that says what it may lack."""

    after: int
    batches: list[Batch[P]]
    point: RestartPoint | None


def _newer(known: Consumer, input_position: int, point: RestartPoint) -> bool:
    """Points of a task with several inputs may differ in the others' positions alone."""
    before = known.restart.output if known.restart else point.output
    return input_position >= known.released and point.output >= before
