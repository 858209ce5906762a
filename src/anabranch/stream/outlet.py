"""Output queue of one stream: numbers tuples, keeps those that may still be needed, releases the
rest.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Generic

from anabranch.errors import Gap, SiteError, StaleEpoch, Superseded
from anabranch.stream.batch import END_WATERMARK, START_WATERMARK, Batch, P
from anabranch.stream.restart import FOREVER, Points, RestartPoint, told_to

SHIPMENT_ROWS = 65_536
"""What is shipped at a time, but for batches that are larger: a standby that comes late gets a long
window's tuples one after the other, and nobody holds them all."""


@dataclass(slots=True)
class Backup:
    """The state of a consumer's standby: it is sent batches of `batch` tuples, up to `shipped` so
    far.
    """

    epoch: int
    batch: int
    shipped: int


@dataclass(slots=True)
class Consumer:
    """What the outlet knows of one consumer: how far it was sent, has received (Level-0), and no
    longer needs (Level-1), with the restart point that came with the latter.

    `epoch` is that of the task that consumes: earlier tasks are refused. So are readers for a
    definition that was dropped, if another of its name has been `born` since.
    """

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
        """Whether it has ended before the stream does; it is remembered in case somebody asks."""
        return self.released == FOREVER


class Outlet(Generic[P]):
    """Positions are dense from `start + 1`. Without consumers nothing is kept, unless something is
    `held`: all after that position is, for those who come later.

    What is kept lies in memory. Who has the oldest of it elsewhere as well, on a disk, has it
    forgotten here: it still is kept, and counts, but cannot be read here. So it is from the
    beginning with what is held up to `start`.
    """

    def __init__(
        self, stream: str, start: int = 0, epoch: int = 0, *, held: int | None = None
    ) -> None:
        self.stream = stream
        self.held = held
        self.epoch = epoch
        self.last = start
        self.released = start if held is None else min(held, start)
        self.watermark = START_WATERMARK
        self.consumers: dict[str, Consumer] = {}
        self._kept: list[Batch[P]] = []
        """What is in memory, and follows what was forgotten."""
        self._lasts: list[int] = [start] if self.released < start else []
        """Last positions of all that is kept: of what was forgotten at once, and of each batch."""
        self._ends: list[int] = [0] if self._lasts else []
        """Bytes ever kept, counted up to the end of each of these."""
        self._bytes = 0
        self._released_bytes = 0

    @property
    def ended(self) -> bool:
        return self.watermark == END_WATERMARK

    @property
    def wanted(self) -> bool:
        """Whether somebody reads it, or will."""
        return self.held is not None or any(not one.finished for one in self.consumers.values())

    @property
    def kept_bytes(self) -> int:
        return self._bytes - self._released_bytes

    @property
    def memory_bytes(self) -> int:
        """The bytes that are kept in memory."""
        forgotten = self._forgotten
        return self._bytes - (self._ends[forgotten - 1] if forgotten else self._released_bytes)

    @property
    def in_memory_after(self) -> int:
        """The position after which everything can be read here."""
        forgotten = self._forgotten
        return self._lasts[forgotten - 1] if forgotten else self.released

    @property
    def _forgotten(self) -> int:
        """How many of `_lasts` are not in memory."""
        return len(self._lasts) - len(self._kept)

    def append(self, data: P, watermark: int) -> Batch[P]:
        """Numbers the tuples of `data` and keeps them. `watermark` holds after them."""
        if self.ended:
            raise ValueError(f"stream {self.stream} has ended")
        self.watermark = max(self.watermark, watermark)
        batch = Batch(self.stream, self.last + 1, self.watermark, self.epoch, data)
        if batch.rows:
            self.last = batch.last
            if self.wanted and batch.last > self.released:
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
        """Raises the watermark without a tuple; False if it does not rise."""
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
        """Keeps tuples for `consumer` from now on, or from after `after` if they are still there;
        returns the position after which it starts. What it told another outlet of the stream also
        holds here: its restart `point`, and the `epoch` before which it is refused. Everything of
        an earlier creation of that name is removed. Raises Superseded if this is the earlier one
        itself.
        """
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
        """The first kept batch with tuples after `after`, cut to them; None if there is none yet.
        `after` is not before `in_memory_after`.

        Raises Gap if tuples after `after` were released already.
        """
        if after < self.released:
            raise Gap(f"stream {self.stream}: {after + 1} was asked for, {self.released} released")
        if after < self.in_memory_after:
            raise AssertionError(f"{self.stream}: {after + 1} is not in memory")
        forgotten = self._forgotten
        index = bisect_right(self._lasts, after, lo=forgotten) - forgotten
        return self._kept[index].after(after) if index < len(self._kept) else None

    def oldest(self, nbytes: int, rows: int, after: int = 0) -> list[Batch[P]]:
        """The first batches in memory with tuples after this position: as many as have so many
        bytes and rows, or one."""
        found: list[Batch[P]] = []
        start = bisect_right(self._lasts, after, lo=self._forgotten) - self._forgotten
        for batch in islice(self._kept, start, None):
            nbytes, rows = nbytes - batch.nbytes, rows - batch.rows
            if found and (nbytes < 0 or rows < 0):
                break
            found.append(batch)
        return found

    def forget(self, position: int) -> None:
        """Forgets what is kept up to there, because it can be read elsewhere."""
        start = self._forgotten
        end = bisect_right(self._lasts, position, lo=start)
        if end > start:
            self._lasts[start:end] = self._lasts[end - 1 : end]
            self._ends[start:end] = self._ends[end - 1 : end]
            del self._kept[: end - start]

    def sent(self, consumer: str, position: int) -> None:
        if consumer in self.consumers:
            self.consumers[consumer].sent = position

    def hold(self, position: int) -> None:
        """What is held begins after `position` from now on."""
        self.held = position
        self._release()

    def passed(self, position: int) -> int:
        """Up to where memory need not have what can be read elsewhere up to `position`: those who
        read here have been sent it."""
        start = self.in_memory_after
        sent = [max(one.sent, one.released) for one in self.consumers.values()]
        return min([position, *(one for one in sent if one >= start)])

    def unsent_bytes(self) -> int:
        """The bytes that the slowest consumer was not sent yet."""
        # Who needs it no more, perhaps from another producer of the stream, need not be sent it.
        sent = [max(one.sent, one.released) for one in self.consumers.values()]
        return self.bytes_after(min(sent)) if sent else 0

    def unsent_to_quickest(self, consumers: Iterable[str]) -> int:
        """The bytes that even the quickest of these was not sent yet; 0 if there is none. Consumers
        that have ended do not count.
        """
        known = [self.consumers[name] for name in consumers if name in self.consumers]
        sent = [max(one.sent, one.released) for one in known if not one.finished]
        return self.bytes_after(max(sent)) if sent else 0

    def bytes_after(self, position: int) -> int:
        """The bytes that are kept after this position."""
        index = bisect_right(self._lasts, position)
        return self._bytes - (self._ends[index - 1] if index else self._released_bytes)

    # -- acks ------------------------------------------------------------------------------------

    def level0(self, consumer: str, position: int, epoch: int, own: int = 0, born: int = 0) -> None:
        """Takes note that `consumer`, whose task is in its epoch `own`, has received everything up
        to `position` of what the producer in `epoch` sent.

        Raises StaleEpoch if the consumer already follows a later producer than this one, Superseded
        if it has itself been replaced.
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
        """Takes note that `consumer` needs nothing up to `input_position` any more and would
        restart at `point`; returns up to where this outlet has now released. An ack overtaken by a
        newer one changes nothing. Raises Superseded as `level0`.
        """
        known = self._current(consumer, own, born)
        if known is not None and _newer(known, input_position, point):
            known.received = max(known.received, input_position)
            known.released = input_position
            known.restart = point
        self._release()
        return self.released

    def readers(self) -> dict[str, RestartPoint]:
        """The points where the consumers that have said so would restart."""
        return {name: one.restart for name, one in self.consumers.items() if one.restart}

    def learn(self, readers: Points) -> None:
        """Learns what these tasks have told another outlet of the stream."""
        for name, known in self.consumers.items():
            if point := told_to(name, readers):
                known.restart = point.join(known.restart) if known.restart else point

    def acknowledged(self) -> int:
        """The position up to which no consumer needs anything, however often it restarts. Received
        tuples do not count: if the consumer died together with the producer, nobody would have
        them.
        """
        needed = (one.released for one in self.consumers.values() if not one.finished)
        return min(needed, default=self.last)

    def _release(self) -> None:
        floor = self.acknowledged()
        floor = floor if self.held is None else min(floor, self.held)
        index = bisect_right(self._lasts, floor)
        if index:
            self._released_bytes = self._ends[index - 1]
            del self._kept[: max(0, index - self._forgotten)]
            del self._lasts[:index], self._ends[:index]
        self.released = max(self.released, floor)

    # -- standby ---------------------------------------------------------------------------------

    def fence(self, consumer: str, epoch: int, born: int = 0) -> Consumer | None:
        """From now on the consumer is the task of `epoch`: those of earlier ones are refused, and
        nothing more is released for them. Raises Superseded if this one is itself too late.
        """
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
        """Begins to ship to the standby of `consumer` that would be primary in `epoch` and has all
        up to `after`. Raises Superseded if there is one of a later epoch.
        """
        known = self.consumers.get(consumer)
        if known is None:
            raise SiteError(f"stream {self.stream} keeps nothing for {consumer}")
        if epoch <= known.epoch or (known.backup and epoch < known.backup.epoch):
            raise Superseded(f"stream {self.stream}: standby of epoch {epoch} was replaced")
        known.backup = Backup(epoch, batch, after)

    def due(self, consumer: str, epoch: int) -> Due | None:
        """What the standby gets next: tuples not released and not shipped, in whole batches. None
        if they are fewer than a batch. Raises Superseded once another standby has come.
        """
        known, backup = self._backed_up(consumer, epoch)
        start = max(backup.shipped, known.released)
        if start < self.released:  # it began behind; the consumer's next ack says where it stands
            return None
        batches = min(max(0, self.last - start), max(SHIPMENT_ROWS, backup.batch)) // backup.batch
        rows = batches * backup.batch
        return Due(start, start + rows, known.restart) if rows else None

    def shipped(self, consumer: str, epoch: int, last: int) -> None:
        """Takes note that the standby is being sent what was due up to there. Raises as `due`."""
        self._backed_up(consumer, epoch)[1].shipped = last

    def _backed_up(self, consumer: str, epoch: int) -> tuple[Consumer, Backup]:
        known = self.consumers.get(consumer)
        if known is None or known.backup is None or known.backup.epoch != epoch:
            raise Superseded(f"stream {self.stream}: standby of epoch {epoch} was replaced")
        return known, known.backup

    def heartbeat(self, consumer: str) -> tuple[int, RestartPoint | None]:
        """What a standby that gets no tuples should know: the watermark, if all is shipped that
        lies before it, and the newest restart point. Tuples that were released before they were
        shipped are missing there: without them the watermark would close windows too early.
        """
        known = self.consumers[consumer]
        all_there = known.backup is not None and known.backup.shipped >= self.last
        return self.watermark if all_there else START_WATERMARK, known.restart


@dataclass(frozen=True, slots=True)
class Due:
    """The tuples after+1…last for a standby, and the restart point that says what it may lack."""

    after: int
    last: int
    point: RestartPoint | None


def _newer(known: Consumer, input_position: int, point: RestartPoint) -> bool:
    """Whether the point is newer. Points of a task with several inputs may differ in the others'
    positions alone.
    """
    before = known.restart.output if known.restart else point.output
    return input_position >= known.released and point.output >= before
