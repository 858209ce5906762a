"""The tuples of a stream that are kept for its readers: the newest in memory, the rest on the
disk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol

from anabranch.errors import CannotResume, ConfigError, SiteError, StorageError
from anabranch.link.inlet import Budget
from anabranch.link.reports import DiskReport
from anabranch.log.segment import Entry
from anabranch.log.stream_log import StreamLog
from anabranch.plan.keep import Keep, Past, show_time
from anabranch.runtime.base import Runtime
from anabranch.stream.batch import START_WATERMARK, Batch, P
from anabranch.stream.outlet import Outlet

ENTRY_BYTES, ENTRY_ROWS = 1_000_000, 65_536
"""What is written and read at a time, but for batches that are larger."""


class Payloads(Protocol[P]):
    """The data that the batches of a stream carry."""

    def newest(self, part: P) -> int:
        """The greatest event time of its rows, of which there are some."""

    def rows_before(self, part: P, time: int) -> int:
        """How many rows come before the first of this event time or a later one."""

    @property
    def nothing(self) -> P:
        """Data without a row."""

    @property
    def schema(self) -> Any: ...

    def joined(self, parts: Sequence[P]) -> P:
        """All rows in one piece."""

    def packed(self, parts: Sequence[P]) -> bytes:
        """All rows in the form in which a log holds them."""

    def unpacked(self, body: bytes | memoryview) -> P:
        """The data that `packed` was given, in one piece."""


@dataclass
class DiskBudget:
    """Bytes that all logs of a site take on its disk; beyond `total` nothing is written."""

    total: int
    used: int = 0
    lets_go: bool = False
    """Rather than have a source wait, what is only kept for those who come later goes."""
    let_go: int = 0
    """Tuples that have gone so."""

    @property
    def left(self) -> bool:
        return self.used < self.total

    def report(self) -> DiskReport:
        return DiskReport(self.used, self.total, self.let_go, self.lets_go)


@dataclass(frozen=True)
class Shelves:
    """The disk where the outlets of a site put what they keep. Each outlet may have an eighth of
    `memory` whatever the others have, so that none starves.
    """

    memory: Budget
    disk: DiskBudget
    new_log: Callable[[str], StreamLog]
    """For what of this stream memory does not hold: empty, and not to outlive the process."""


@dataclass(frozen=True)
class KeptLog:
    """The log of a stream that is there for those who come later, and outlives the process: with
    `synced` the machine's power, too."""

    log: StreamLog
    keep: Keep
    synced: bool = False


class OutletStore(Generic[P]):
    """The store of one stream. Without `shelves` all is in memory.

    What an `outlet` keeps is written to the disk from its oldest on when memory has too much of it,
    by a coroutine that lives as long as there is something to do. It is read again from there, by
    any number of readers. What has a `record` is written there at once, and stays as long as that
    says, and a reader needs it.
    """

    def __init__(
        self,
        runtime: Runtime,
        outlet: Outlet[P],
        payloads: Payloads[P],
        shelves: Shelves | None,
        tell: Callable[[], None],
        record: KeptLog | None = None,
    ) -> None:
        """`tell` is called when the disk has taken something, or could not."""
        self.outlet = outlet
        self.changed = runtime.signal()
        """Something was added, or there is more room."""
        self._runtime = runtime
        self._payloads = payloads
        self._shelves = shelves
        self._tell = tell
        self._record = record
        self._log = record.log if record else None
        self._needless: list[StreamLog] = []
        """Of outlets that are forgotten; to be removed."""
        self._closed = False
        self._busy = False
        self._rested = runtime.signal()
        self._trouble = False
        """The disk takes nothing at present."""
        self._memory_used = 0
        self._disk_used = 0
        self._past = 0
        """Up to there nothing need be kept for those who come later."""

    @property
    def disk_bytes(self) -> int:
        return self._disk_used

    @property
    def settled(self) -> int:
        """Nobody asks the producer again for anything up to there."""
        if self._record:
            return min(self._record.log.last, self.outlet.last)
        return self.outlet.acknowledged()

    def takes(self, limit: int) -> bool:
        """Whether a stream with a record takes more: less than `limit` bytes are still to be
        written.
        """
        assert self._record
        return self.spills and self.outlet.bytes_after(self._record.log.last) < limit

    @property
    def spills(self) -> bool:
        """Whether the disk takes what memory does not hold: then nobody need wait for a slow
        reader.
        """
        shelves = self._shelves
        return shelves is not None and shelves.disk.left and not self._trouble

    @property
    def falls_behind(self) -> bool:
        """Whether more is added than the disk takes."""
        return self._shelves is not None and self._memory_used > 2 * self._shelves.memory.total

    def begin(self, outlet: Outlet[P]) -> None:
        """Forgets everything; from now on it stores what `outlet` keeps."""
        self.outlet = outlet
        self._let_go()
        self.look()

    def close(self) -> None:
        """Nothing is on the disk any more, but for the record."""
        self._closed = True
        self._let_go()
        self.look()
        self.changed.notify()

    async def rest(self) -> None:
        """Called after `close`: nothing is written any more."""
        while self._busy:
            await self._rested.wait()
        if self._record:
            await self._runtime.blocking(self._record.log.close)

    def _let_go(self) -> None:
        if self._log and not self._record:
            self._needless.append(self._log)
            self._log = None

    def look(self) -> None:
        """Called after anything was added or released: starts to spill if there is something to
        do.
        """
        if self._shelves:
            self._count(self._shelves)
            if not self._busy and self._to_do(self._shelves):
                self._busy = True
                self._runtime.supervise(f"spilling of {self.outlet.stream}", self._keep_up)

    # -- reading ---------------------------------------------------------------------------------

    async def read(self, after: int) -> Batch[P] | None:
        """The first tuples after `after`, as they were kept; None if there are none yet. Raises Gap
        if they were released.
        """
        while True:
            outlet, log = self.outlet, self._log
            if self._closed:
                raise SiteError(f"stream {outlet.stream} is not given here any more")
            if log is None or not outlet.released <= after < outlet.in_memory_after:
                return outlet.read(after)
            try:
                return await self._runtime.blocking(self._read, outlet, log, after)
            except StorageError as error:
                raise SiteError(f"stream {outlet.stream}: {error.line()}") from error
            except CannotResume:
                if not self._closed and self.outlet is outlet and outlet.released <= after:
                    raise  # else it was let go of meanwhile

    def _read(self, outlet: Outlet[P], log: StreamLog, after: int) -> Batch[P]:
        last = outlet.last
        entry = next(log.read(after), None)
        if entry is None:
            raise CannotResume(f"nothing follows position {after}", place=log.place)
        data = self._payloads.unpacked(entry.body)
        batch = Batch(outlet.stream, entry.first, entry.watermark, outlet.epoch, data).after(after)
        if batch.last > last:  # what the log has more is given again before it counts
            return batch.head(last - batch.first + 1, START_WATERMARK)
        return batch

    async def find(self, past: Past) -> int:
        """The position after which a reader begins that asks for the past. Raises ConfigError if
        what it asks for is not kept.
        """
        log = self._record.log if self._record else None
        time = past.since_us
        if past.back_us is not None:
            time = (log.newest_time if log else START_WATERMARK) - past.back_us
        position = 0 if time is None else await self._position(log, time)
        gone = log.gone_time if log else None
        is_there = time is not None and gone is not None and gone < time
        if self.outlet.released and not is_there:
            raise _not_kept(self.outlet.stream, past, gone)
        return max(position, self.outlet.released)

    async def _position(self, log: StreamLog | None, time: int) -> int:
        """The position after which the first tuple of this event time or a later one comes."""
        position = self.outlet.released
        if log:
            position = max(position, await self._runtime.blocking(log.since, time))
        while batch := await self.read(position):
            rows = self._payloads.rows_before(batch.data, time)
            if rows < batch.rows:
                return position + rows
            position = batch.last
        return position

    async def cut(self, after: int, last: int) -> list[Batch[P]]:
        """The kept tuples after+1…last. The watermark of a batch that is cut does not hold yet."""
        found: list[Batch[P]] = []
        watermark = START_WATERMARK
        while after < last:
            part = await self.read(after)
            assert part
            if part.last > last:
                part = part.head(last - part.first + 1, watermark)
            found.append(part)
            after, watermark = part.last, part.watermark
        return found

    # -- writing ---------------------------------------------------------------------------------

    def _count(self, shelves: Shelves) -> None:
        used = 0 if self._closed else self.outlet.memory_bytes
        before, self._memory_used = self._memory_used, used
        shelves.memory.use(self._memory_used - before)
        before = self._disk_used
        there = None if self._closed else self._log
        self._disk_used = sum(log.size for log in (there, *self._needless) if log)
        shelves.disk.used += self._disk_used - before

    def _to_do(self, shelves: Shelves) -> bool:
        too_much = (self._unwritten() and shelves.disk.left) or self._too_much(shelves)
        return bool(self._needless) or too_much or self._has_needless()

    def _unwritten(self) -> bool:
        if self._record is None or self._closed:
            return False
        return self._record.log.last < self.outlet.last

    def _too_much(self, shelves: Shelves) -> bool:
        memory, mine = shelves.memory, self._memory_used
        over = mine > memory.total or (mine > memory.total // 8 and not memory.left)
        return over and shelves.disk.left

    def _has_needless(self) -> bool:
        log, floor = self._log, self._floor()
        if log is None or (self._record and self._closed):
            return False
        return log.has_released(floor) or (log.last <= floor and not self._record)

    def _floor(self) -> int:
        """What is on the disk may go up to there."""
        if self._record is None:
            return self.outlet.released
        log = self._record.log
        past = self._past = log.past(self._record.keep)
        if self._shelves and self._shelves.disk.lets_go and not self._shelves.disk.left:
            past = max(past, log.oldest)
        return min(past, self.outlet.acknowledged())

    async def _keep_up(self) -> None:
        assert self._shelves
        try:
            while self._to_do(self._shelves):
                await self._step(self._shelves)
                self._count(self._shelves)
                self._trouble = False
                self._tell()
        except Exception:
            self._trouble = True
            raise
        finally:
            self._tell()
        self._trouble = self._busy = False
        self._rested.notify()

    async def _step(self, shelves: Shelves) -> None:
        """Does one thing at a time, because a log has one writer. A step that failed is taken
        again, though it may have been done.
        """
        if self._log and self._log.last <= self.outlet.released:
            self._let_go()
        floor = self._floor()
        if self._needless:
            await self._runtime.blocking(self._needless[0].remove)
            del self._needless[0]
        elif self._log and self._log.has_released(floor):
            await self._runtime.blocking(self._log.release, floor)
            if self._record:
                self._let_go_of(self._record, shelves.disk)
        elif self._record and self._unwritten():
            await self._note_down(self._record)
        else:
            await self._spill(shelves)

    def _let_go_of(self, record: KeptLog, disk: DiskBudget) -> None:
        """The log begins later. What need not have gone is counted."""
        begin = record.log.begin
        disk.let_go += max(0, begin - max(self.outlet.released, self._past))
        self.outlet.hold(begin)

    async def _note_down(self, record: KeptLog) -> None:
        outlet, log = self.outlet, record.log
        batches = outlet.oldest(ENTRY_BYTES, ENTRY_ROWS, log.last)
        await self._runtime.blocking(self._write, log, batches)
        outlet.forget(outlet.passed(log.last))

    async def _spill(self, shelves: Shelves) -> None:
        outlet = self.outlet
        self._log = log = self._log or shelves.new_log(outlet.stream)
        batches = outlet.oldest(ENTRY_BYTES, ENTRY_ROWS)
        await self._runtime.blocking(self._write, log, batches)
        outlet.forget(batches[-1].last)

    def _write(self, log: StreamLog, batches: Sequence[Batch[P]]) -> None:
        new = [batch.after(log.last) for batch in batches if batch.last > log.last]
        if not new:
            return
        first, newest = new[0].first, new[-1]
        if log.last != first - 1:  # it is new, or all it had was let go of, and more
            log.begin_after(first - 1)
        body = self._payloads.packed([batch.data for batch in new])
        rows, time = newest.last - first + 1, START_WATERMARK
        if self._record:
            time = max(self._payloads.newest(batch.data) for batch in new)
        log.append(
            Entry(first, rows, newest.watermark, body, newest=time),
            sync=bool(self._record and self._record.synced),
        )


def _not_kept(stream: str, past: Past, gone: int | None) -> ConfigError:
    """`gone` is the greatest event time of what is not kept any more; None if nothing is."""
    if gone is None:
        return ConfigError(
            f"stream {stream} cannot be read {past}: nothing of it is kept once it has been read",
            remedy="Create it with KEEP, as in KEEP 7d; that keeps what comes from then on.",
        )
    return ConfigError(
        f"stream {stream} cannot be read {past}: it is kept from '{show_time(gone + 1)}' on",
        remedy=f"Write SINCE '{show_time(gone + 1)}', and give KEEP more to have more next time.",
    )
