"""The work of a state server, without its network: ranges in, windows out, checkpoints between."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import TaskError
from anabranch.stage.global_database import ServerBackup
from anabranch.stage.messages import SEE_S, Counts, DueWindows, StateStatus
from anabranch.stage.offsets import Epochs, OffsetRange, Offsets
from anabranch.stage.partials import SLICE, Slices, first_slice
from anabranch.stage.store import Since, StateStore
from anabranch.stream.batch import END_WATERMARK, START_WATERMARK
from anabranch.window.panes import Grid

IDLE_S = 3.0
"""A partition without anything new for this long holds up the others no more."""


class StateService:
    """Thread-safe. A put is in the state when the call returns, and durable with the next
    checkpoint."""

    def __init__(
        self, store: StateStore, grid: Grid, lateness_us: int, backup: ServerBackup | None = None
    ) -> None:
        """`backup` is the backup of `store`, if there is one."""
        self._store = store
        self._backup = backup
        self._grid = grid
        self._lateness_us = lateness_us
        self._changed = threading.Condition(threading.RLock())
        kept = store.checkpoint()
        self._epochs = Epochs(Offsets.of(kept.offsets), flushed=kept.epoch)
        self._facts = dict.fromkeys(("rows", "late", "skipped", "given"), 0) | kept.facts
        self._facts.setdefault("floor", START_WATERMARK)
        self._counts: dict[OffsetRange, Counts] = {}
        self._ends: dict[str, tuple[int, float]] = {}
        """Partition → where it ends, and since when it has had nothing more for us."""
        self._slices = Slices(grid, store.slices())
        """Those that may be needed."""
        self._frozen_facts: dict[str, int] = {}
        self._flushing = threading.Lock()
        self._flush_s = 0.0
        self._kept = self._keeping()
        store.open(self._epochs.open)

    # -- input ----------------------------------------------------------------------------------

    def begin(self, starts: dict[str, int]) -> StateStatus:
        """Adds these partitions, each from its start on; known ones stay. Returns the status."""
        with self._changed:
            self._epochs.offsets.begin(starts)
        return self.status()

    def end(self, goals: dict[str, int]) -> None:
        with self._changed:
            self._epochs.offsets.set_goals(goals)
            self._changed.notify_all()

    def ends(self, ends: dict[str, int]) -> None:
        """Sets where the partitions of a source that goes on end at present."""
        now = time.monotonic()
        with self._changed:
            upto = self._epochs.offsets.upto()
            for name, end in ends.items():
                if self._ends.get(name, (end, now))[0] != end or upto.get(name, 0) < end:
                    self._ends[name] = (end, now)
                else:
                    self._ends.setdefault(name, (end, now))

    def _idle(self) -> list[str]:
        """Partitions that have brought nothing for a while, if there are others."""
        limit = time.monotonic() - IDLE_S
        idle = [name for name, (_, since) in self._ends.items() if since < limit]
        others = self._backup is not None and self._backup.elsewhere is not None
        return idle if others or len(idle) < len(self._ends) else []

    def gaps(self, ends: dict[str, int]) -> list[OffsetRange]:
        with self._changed:
            offsets = self._epochs.offsets
            return [gap for name, end in sorted(ends.items()) for gap in offsets.gaps(name, end)]

    def see(self, range: OffsetRange, newest: int) -> int:
        """The greatest event time before `range`, whose own is `newest`; waits for those who read
        what comes before it.
        """
        deadline = time.monotonic() + SEE_S
        with self._changed:
            offsets = self._epochs.offsets
            offsets.see(range, newest)
            self._changed.notify_all()
            while (before := offsets.newest_before(range)) is None:
                if not self._changed.wait(deadline - time.monotonic()):
                    raise TaskError(f"what comes before {range} was not read in {SEE_S:.0f} s")
            return before

    def judged(self, range: OffsetRange, counts: Counts) -> None:
        """Takes the counts of `range`. Call it before its partials are put."""
        with self._changed:
            self._counts[range] = counts

    def put(self, range: OffsetRange, partials: pa.RecordBatchReader | None) -> bool:
        """Puts, in one transaction, the partials of a range and the fact that it is in. False if it
        was in.
        """
        with self._changed:
            while True:
                if self._epochs.offsets.has(range):
                    self._counts.pop(range, None)
                    return False
                epoch = self._epochs.enter(range)
                if epoch is not None:
                    break
                self._changed.wait()
        counted = _Counted(partials) if partials else None
        try:
            transaction = self._store.put(epoch, counted.reader() if counted else None)
        except BaseException:
            with self._changed:
                self._epochs.abort(epoch, range)
                self._changed.notify_all()
            raise
        with self._changed:  # whoever looks sees both or neither
            transaction.commit()
            counts = self._counts.pop(range)
            self._epochs.commit(epoch, range, counts.newest)
            self._count(self._facts, counts)
            if epoch < self._epochs.open:
                self._count(self._frozen_facts, counts)
            self._slices.count(counted.slices if counted else {})
            self._changed.notify_all()
        return True

    def _count(self, facts: dict[str, int], counts: Counts) -> None:
        facts["rows"] += counts.rows
        facts["late"] += counts.late
        facts["skipped"] += counts.skipped

    # -- results --------------------------------------------------------------------------------

    def due(self, after: int, wait_s: float) -> DueWindows:
        """The next windows whose results are whole, among those that end after `after`: the end of
        the last of them, or None if there is none within `wait_s`; and whether all input is in.
        """
        deadline = time.monotonic() + wait_s
        with self._changed:
            while True:
                watermark = self._watermark()
                last = self._slices.last_due(after, watermark)
                ended = watermark == END_WATERMARK
                if last is not None or ended or not self._changed.wait(deadline - time.monotonic()):
                    return DueWindows(self.status(), last, ended and last is None)

    def _watermark(self) -> int:
        return self._epochs.offsets.watermark(self._lateness_us)

    def results(self, after: int, upto: int) -> pa.Table:
        """Results of the windows that end after `after` and up to `upto`, in the order (end,
        key).
        """
        with self._changed:
            windows = self._slices.windows(after, upto)
        if not windows:
            windows = [self._grid.open_at(upto) - 1]
        return self._store.windows(windows[0], windows[-1], self._grid.stride, self._grid.span)

    def state(self) -> tuple[pa.Table, StateStatus]:
        """The present results of the windows that are not released yet, and the status that belongs
        to them.
        """
        with self._changed:
            status, snapshot = self.status(), self._store.snapshot()
            windows = self._slices.windows(self._facts["floor"], END_WATERMARK) or [0]
        return snapshot.windows(windows[0], windows[-1], self._grid.stride, self._grid.span), status

    def release(self, upto: int, given: int = 0) -> None:
        """Notes that results of windows that end at or before `upto`, which were `given` in all,
        are never asked for again.
        """
        with self._changed:
            if upto > self._facts["floor"]:
                self._facts |= {"floor": upto, "given": given}
            self._slices.forget(self._floor())

    def _floor(self) -> int:
        """The first slice that a window still needs."""
        return first_slice(self._grid, self._facts["floor"])

    # -- checkpoints ----------------------------------------------------------------------------

    def checkpoint(self) -> int:
        """Raises a barrier and does all that follows from it; returns the epoch that is on disk
        then.
        """
        with self._flushing:
            with self._changed:
                if not self._store.durable:
                    return 0
                if self._kept == self._keeping() and not self._idle():
                    return self._epochs.flushed
                elsewhere = self._backup.elsewhere if self._backup else None
                self._epochs.offsets.raise_idle(self._idle(), elsewhere)
                # The table first: whoever enters the new epoch writes there at once.
                self._store.open(self._epochs.open + 1)
                self._epochs.barrier()
                self._frozen_facts = dict(self._facts)
                while (epoch := self._epochs.whole) is None:
                    self._changed.wait()
                offsets, facts = self._epochs.frozen, self._frozen_facts
                floor = self._floor()
                assert offsets is not None
                facts["watermark"] = offsets.watermark(self._lateness_us)
                facts["reached"] = offsets.reached(self._idle())
            begun = time.monotonic()
            self._store.flush(epoch, floor, offsets.rows(), facts)
            with self._changed:
                self._flush_s += time.monotonic() - begun
                self._epochs.flush_done()
                if self._backup is None:
                    self._epochs.offsets.kept(offsets.rows())
                self._kept = offsets.rows(), facts["floor"], facts["watermark"]
                self._changed.notify_all()
            return epoch

    def back_up(self) -> None:
        """Brings the global database up to the last checkpoint. The watermark follows only facts
        that are saved there, because another server would need them if this one were lost.
        """
        if self._backup is None:
            return
        if self._store.saved < self._epochs.flushed:
            kept = self._backup.save(self._since, self._floor())
            with self._changed:
                self._epochs.offsets.kept(kept.offsets if kept else ())
                self._changed.notify_all()
        self._backup.look()
        self.release(self._backup.floor)

    def _since(self, epoch: int) -> Since:
        with self._flushing:
            return self._store.since(epoch)

    def _keeping(self) -> tuple[list[tuple[str, int, int, int]], int, int]:
        """The facts that a new checkpoint would write differently."""
        return self._epochs.offsets.rows(), self._facts["floor"], self._watermark()

    def status(self) -> StateStatus:
        with self._changed:
            facts = self._facts
            status = StateStatus(
                offsets=self._epochs.offsets.upto(),
                watermark=self._watermark(),
                epoch=self._epochs.open,
                flushed=self._epochs.flushed,
                flush_s=self._flush_s,
                slices=len(self._slices),
                partials=sum(self._slices.values()),
                rows=facts["rows"],
                late=facts["late"],
                skipped=facts["skipped"],
                released=(facts["floor"], facts["given"]),
            )
            return self._with_backup(status, self._backup) if self._backup else status

    def _with_backup(self, status: StateStatus, backup: ServerBackup) -> StateStatus:
        behind = self._epochs.flushed - self._store.saved
        saved = not behind and self._kept == self._keeping()
        return replace(status, backup_behind=behind, backup_problem=backup.problem, saved=saved)

    def close(self) -> None:
        self._store.close()


class _Counted:
    """Partials on their way in; `slices` counts how many of each slice have gone by."""

    def __init__(self, partials: pa.RecordBatchReader) -> None:
        self._partials = partials
        self.slices: dict[int, int] = {}

    def reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self._partials.schema, self._batches())

    def _batches(self) -> Any:
        for batch in self._partials:
            for count in pc.value_counts(batch.column(SLICE)).to_pylist():
                self.slices[count["values"]] = self.slices.get(count["values"], 0) + count["counts"]
            yield batch
