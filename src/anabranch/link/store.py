"""What is kept of a stream for its readers: the newest in memory, the rest on the disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol

from anabranch.errors import CannotResume, SiteError, StorageError
from anabranch.link.inlet import Budget
from anabranch.log.segment import Entry
from anabranch.log.stream_log import StreamLog
from anabranch.runtime.base import Runtime
from anabranch.stream.batch import START_WATERMARK, Batch, P
from anabranch.stream.outlet import Outlet

ENTRY_BYTES, ENTRY_ROWS = 1_000_000, 65_536
"""What is written and read at a time, but for batches that are larger."""


class Payloads(Protocol[P]):
    """What the batches of a stream carry."""

    @property
    def nothing(self) -> P:
        """Without a row."""

    @property
    def schema(self) -> Any: ...

    def joined(self, parts: Sequence[P]) -> P:
        """All rows as one."""

    def packed(self, parts: Sequence[P]) -> bytes:
        """All rows as they stand in a log."""

    def unpacked(self, body: bytes | memoryview) -> P:
        """What `packed` was given, as one."""


@dataclass
class DiskBudget:
    """Bytes that all logs of a site take on its disk; beyond `total` nothing is spilled."""

    total: int
    used: int = 0

    @property
    def left(self) -> bool:
        return self.used < self.total


@dataclass(frozen=True)
class Shelves:
    """Where the outlets of a site put what they keep. An outlet may have an eighth of `memory`
    whatever the others have, so that none starves."""

    memory: Budget
    disk: DiskBudget
    new_log: Callable[[str], StreamLog]
    """For what of this stream memory does not hold: empty, and not to outlive the process."""


class OutletStore(Generic[P]):
    """Of one stream. Without `shelves` all is in memory.

    What an `outlet` keeps is written to the disk from its oldest on when memory has too much of it,
    by a coroutine that lives as long as there is something to do. It is read again from there, by
    any number of readers.
    """

    def __init__(
        self,
        runtime: Runtime,
        outlet: Outlet[P],
        payloads: Payloads[P],
        shelves: Shelves | None,
        tell_room: Callable[[], None],
    ) -> None:
        """`tell_room` is called when the disk has taken something, or could not."""
        self.outlet = outlet
        self.changed = runtime.signal()
        """Something was added, or there is more room."""
        self._runtime = runtime
        self._payloads = payloads
        self._shelves = shelves
        self._tell_room = tell_room
        self._log: StreamLog | None = None
        self._needless: list[StreamLog] = []
        """Of outlets that are forgotten; to be removed."""
        self._closed = False
        self._busy = False
        self._trouble = False
        """The disk takes nothing at present."""
        self._memory_used = 0
        self._disk_used = 0

    @property
    def disk_bytes(self) -> int:
        return self._disk_used

    @property
    def spills(self) -> bool:
        """What memory does not hold goes to the disk: nobody need wait for a slow reader."""
        shelves = self._shelves
        return shelves is not None and shelves.disk.left and not self._trouble

    @property
    def falls_behind(self) -> bool:
        """More is added than the disk takes."""
        return self._shelves is not None and self._memory_used > 2 * self._shelves.memory.total

    def begin(self, outlet: Outlet[P]) -> None:
        """Everything is forgotten; from now on it is `outlet` that keeps."""
        self.outlet = outlet
        self._let_go()
        self.look()

    def close(self) -> None:
        """Nothing is on the disk any more."""
        self._closed = True
        self._let_go()
        self.look()
        self.changed.notify()

    def _let_go(self) -> None:
        if self._log:
            self._needless.append(self._log)
            self._log = None

    def look(self) -> None:
        """After anything was added or let go of: whether there is something to do."""
        if self._shelves:
            self._count(self._shelves)
            if not self._busy and self._to_do(self._shelves):
                self._busy = True
                self._runtime.supervise(f"spilling of {self.outlet.stream}", self._keep_up)

    # -- reading ---------------------------------------------------------------------------------

    async def read(self, after: int) -> Batch[P] | None:
        """The first tuples behind `after`, as they were kept; None if there are none yet. Raises
        Gap if they were let go of."""
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
        entry = next(log.read(after), None)
        if entry is None:
            raise CannotResume(f"nothing follows position {after}", place=log.place)
        data = self._payloads.unpacked(entry.body)
        return Batch(outlet.stream, entry.first, entry.watermark, outlet.epoch, data).after(after)

    async def cut(self, after: int, last: int) -> list[Batch[P]]:
        """The kept tuples after+1…last. The watermark of one that is cut does not hold yet."""
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
        self._disk_used = sum(log.size for log in (self._log, *self._needless) if log)
        shelves.disk.used += self._disk_used - before

    def _to_do(self, shelves: Shelves) -> bool:
        return bool(self._needless) or self._too_much(shelves) or self._has_needless()

    def _too_much(self, shelves: Shelves) -> bool:
        memory, mine = shelves.memory, self._memory_used
        over = mine > memory.total or (mine > memory.total // 8 and not memory.left)
        return over and shelves.disk.left

    def _has_needless(self) -> bool:
        log, released = self._log, self.outlet.released
        return log is not None and (log.last <= released or log.has_released(released))

    async def _keep_up(self) -> None:
        assert self._shelves
        try:
            while self._to_do(self._shelves):
                await self._step(self._shelves)
                self._count(self._shelves)
                self._trouble = False
                self._tell_room()
        except Exception:
            self._trouble = True
            raise
        finally:
            self._tell_room()
        self._trouble = self._busy = False

    async def _step(self, shelves: Shelves) -> None:
        """One thing at a time: a log has one writer. A step that failed is taken again, though it
        may have been done."""
        if self._log and self._log.last <= self.outlet.released:
            self._let_go()
        if self._needless:
            await self._runtime.blocking(self._needless[0].remove)
            del self._needless[0]
        elif self._log and self._log.has_released(self.outlet.released):
            await self._runtime.blocking(self._log.release, self.outlet.released)
        else:
            await self._spill(shelves)

    async def _spill(self, shelves: Shelves) -> None:
        outlet = self.outlet
        self._log = log = self._log or shelves.new_log(outlet.stream)
        batches = outlet.oldest(ENTRY_BYTES, ENTRY_ROWS)
        await self._runtime.blocking(self._write, log, batches)
        outlet.forget(batches[-1].last)

    def _write(self, log: StreamLog, batches: Sequence[Batch[P]]) -> None:
        new = [batch for batch in batches if batch.first > log.last]
        if not new:
            return
        first, newest = new[0].first, new[-1]
        if log.last != first - 1:  # it is new, or all it had was let go of, and more
            log.begin_after(first - 1)
        body = self._payloads.packed([batch.data for batch in new])
        log.append(Entry(first, newest.last - first + 1, newest.watermark, body))
