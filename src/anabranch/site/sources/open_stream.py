"""A stream without a source of its own: a pocket or a program fills it."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.disk.folder import Folder
from anabranch.errors import AnabranchError, CannotResume, SourceError, StorageError
from anabranch.link.outlet import LiveOutlet
from anabranch.link.reports import SourceReport
from anabranch.link.wire import BORN, EVENT_TIME, record_batches
from anabranch.log.segment import Entry
from anabranch.log.stream_log import StreamLog
from anabranch.plan.catalog import StreamDef
from anabranch.site.sources.pace import beats
from anabranch.site.sources.pushed import Pushed, times_of
from anabranch.site.tasks.measures import Rate
from anabranch.stream.batch import END_WATERMARK
from anabranch.stream.restart import FOREVER, RestartPoint

PIECE_ROWS = 65_536
ROOM_S = 5.0
"""How long a push waits for consumers that are behind."""
PROMISE_US = 1_000_000
"""A promise about the clock is kept for so long ahead, so that it is written once a second."""


GIVEN = "given"
"""A note of what a pocket gave: which creation of it, and how far its inputs had been taken."""
AGAIN_S = 1.0


@dataclass(frozen=True, slots=True)
class PocketPoint:
    """The inputs after which a pocket goes on, and the number of its creation."""

    born: int
    inputs: tuple[int, ...]


class OpenStream:
    """States: `open` → `ended`, or `failed`. Once a pocket gives its output here, programs may not.

    Pushed rows are in the log before anybody hears of them, the program included. After a restart
    the log is read again from where the readers need it, and pushes wait for that.

    The first push decides whether event times are the program's, all of them, or those of arrival;
    the latter let the clock move the watermark while nothing is pushed.
    """

    def __init__(
        self,
        stream: StreamDef,
        outlet: LiveOutlet[Any],
        heartbeat_s: float,
        folder: Folder | None = None,
        name: str = "",
        *,
        power: bool = False,
    ) -> None:
        """Without a `folder`, pushed rows are in memory only. With `power` they outlive a power
        cut, too.
        """
        self.stream = stream
        self.outlet = outlet
        self.pocket: str | None = None
        self.error: AnabranchError | None = None
        self._pushed = Pushed(stream.lateness_us)
        self._promised = 0
        self._problem = ""
        self._ended = False
        self._log = StreamLog(folder, name, self._learn, self._notes) if folder else None
        self._power = power
        self._missing = bool(self._log and self._log.last)
        """Readers still need what only the log has, or may, as far as we know yet."""
        self._rate = Rate()
        self._counted = 0
        self._heartbeat_s = heartbeat_s
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._beating = False
        self._replay: threading.Thread | None = None

    @property
    def state(self) -> str:
        if self.error:
            return "failed"
        return "ended" if self.outlet.ended else "open"

    @property
    def finite(self) -> bool:
        """Whether anyone may wait for its end: a program says so by ending it."""
        return self.outlet.ended

    def _learn(self, entry: Entry) -> None:
        self._pushed = self._pushed.learned(entry.notes)
        self._ended = entry.watermark == END_WATERMARK

    def _notes(self) -> Mapping[str, Any]:
        return self._pushed.notes()

    # -- after a restart -------------------------------------------------------------------------

    def resume(self, position: int) -> None:
        log = self._log
        if self.outlet.log:  # what is written there need not be given again
            position = self.outlet.log.last
        if log is None or self.pocket:
            position = 0 if position == FOREVER else position  # nobody needs what was pushed
            self._missing = False
        else:
            # Before the readers are there, what is given is kept for none of them: see `start`.
            self._missing = position != FOREVER
            position = log.last if position == FOREVER else position
            if not log.begin <= position <= log.last:
                raise CannotResume(
                    f"stream {self.stream.name} is to go on after position {position}, but what"
                    f" was pushed is kept from {log.begin + 1} to {log.last}",
                    place=log.place,
                    remedy="Restore that file, or drop the stream and its readers and create them"
                    " again.",
                )
        self.outlet.start_at(position)
        self._counted = position
        if not self._missing:
            self._go_on()

    def start(self) -> None:
        """Starts, at the first call only. Its readers are there: gives what they still need from
        the log. A stream that is new, and one that nobody reads, has begun already.
        """
        if self._missing and self._replay is None:
            self._replay = threading.Thread(
                target=self._give_again, name=f"log-{self.stream.name}", daemon=True
            )
            self._replay.start()

    def _give_again(self) -> None:
        assert self._log
        try:
            for entry in self._log.read(self.outlet.last):
                if not self.outlet.wait_for_room(self._stopped):
                    return
                self.outlet.append(self._rows_after(entry, self.outlet.last), self.outlet.watermark)
        except AnabranchError as error:
            error.message = f"stream {self.stream.name}: {error.message}"
            self.error = error
            return
        self._missing = False
        self._go_on()

    def _rows_after(self, entry: Entry, position: int) -> list[pa.RecordBatch]:
        if not entry.rows:
            return []
        rows = pa.ipc.read_record_batch(pa.py_buffer(entry.body), self.outlet.schema)
        return [rows.slice(position + 1 - entry.first)]

    def _go_on(self) -> None:
        """Takes note that everything was given again. What was promised holds."""
        if self._ended:
            self.outlet.end()
            return
        if self._pushed.timed is not None:
            self.outlet.append([], self._pushed.watermark)
            self._follow_clock()

    def close(self) -> None:
        self._stopped.set()
        if self._replay:
            self._replay.join(timeout=10)
        with self._lock:
            if self._log:
                self._log.close()

    # -- a pocket's rows -------------------------------------------------------------------------

    def keep_given(
        self, pieces: Sequence[pa.RecordBatch], watermark: int, point: PocketPoint
    ) -> None:
        """Keeps what a pocket is about to give here, and where its input goes on after that. Waits
        for a full disk. Called in the pocket's thread, before anybody hears of it.
        """
        while self._log and not self._stopped.is_set():
            try:
                with self._lock:
                    self._keep_pieces(self._log, pieces, watermark, point)
            except StorageError as error:
                self._problem = error.line()
                self._stopped.wait(AGAIN_S)
            else:
                self._problem = ""
                return

    def _keep_pieces(
        self, log: StreamLog, pieces: Sequence[pa.RecordBatch], watermark: int, point: PocketPoint
    ) -> None:
        if log.last != self.outlet.last:
            log.begin_after(self.outlet.last)
        rows = pa.Table.from_batches(pieces, self.outlet.schema)
        self._write(log, rows, watermark, {GIVEN: [point.born, *point.inputs]})

    def go_on_after(self, point: RestartPoint, born: int) -> RestartPoint:
        """The point where the pocket that fills this stream goes on after a restart: after the kept
        part of what it gave since `point`, which is given again here.
        """
        log = self._log
        if log is None or log.last <= point.output:
            return point
        inputs = point.inputs
        for entry in log.read(point.output):
            creation, *positions = entry.notes.get(GIVEN, [None])
            inputs = tuple(positions) if creation == born else inputs
            self.outlet.append(self._rows_after(entry, self.outlet.last), self.outlet.watermark)
        return replace(point, inputs=inputs, output=self.outlet.last)

    # -- pushes ----------------------------------------------------------------------------------

    def schema(self) -> pa.Schema:
        """The schema of pushed rows; `_ts` may be left out."""
        kept = [field for field in self.outlet.schema if field.name != BORN]
        return pa.schema(kept)

    def push(self, table: pa.Table, writer: str = "", number: int = 0) -> bool:
        """Appends rows of `schema()`, all or none: False if there is no room for them yet. A push
        that its `writer` repeats, because it had no answer, is there once.
        """
        self._refuse_beside_pocket()
        timed = self._times_given(table)
        if self._missing or not self.outlet.wait_for_room(self._stopped, ROOM_S):
            return False
        with self._lock:
            if self._stopped.is_set():
                return False
            self._refuse_after_end()
            if not self._pushed.has(writer, number):
                self._append(table, timed, writer, number)
        self._follow_clock()
        return True

    def _append(self, table: pa.Table, timed: bool, writer: str, number: int) -> None:
        """Keeps the rows, then gives them. If they cannot be kept, nothing has changed."""
        before = self._pushed if self._pushed.timed is not None else _decided(self._pushed, timed)
        if before.timed != timed:
            raise SourceError(
                f"stream {self.stream.name}: rows with {EVENT_TIME} and without are mixed",
                remedy="Give it in all rows or in none.",
            )
        timely, after = self._judged(table, before, time.time_ns() // 1000)
        after = after.written(writer, number)
        batches = list(record_batches(timely, PIECE_ROWS))
        if self._log:
            self._keep(self._log, timely, after, after.news(writer, number))
        self._pushed = after
        self.outlet.append(batches, after.watermark)

    def _keep(
        self, log: StreamLog, rows: pa.Table, state: Pushed, notes: Mapping[str, Any]
    ) -> None:
        if log.last != self.outlet.last:  # a pocket filled the stream for a while
            log.begin_after(self.outlet.last)
        self._write(log, rows, state.watermark, notes)

    def _write(
        self, log: StreamLog, rows: pa.Table, watermark: int, notes: Mapping[str, Any]
    ) -> None:
        batch = rows.combine_chunks().to_batches()
        body = batch[0].serialize().to_pybytes() if batch else b""
        entry = Entry(self.outlet.last + 1, len(rows), watermark, body, notes)
        log.append(entry, sync=self._power)
        log.release(self.outlet.settled)

    def _judged(self, table: pa.Table, state: Pushed, now_us: int) -> tuple[pa.Table, Pushed]:
        """The rows that are not late, with their times, and where the stream stands after them."""
        born = pa.array(np.full(len(table), now_us), pa.int64())
        if not state.timed:
            after = state.arrival(now_us)
            times = pa.array(np.full(len(table), after.newest), pa.int64())
            return pa.table([*table.columns, times, born], schema=self.outlet.schema), after
        late, after = state.judge(times_of(table))
        timely = pa.table([*table.columns, born], schema=self.outlet.schema)
        return timely if late is None else timely.filter(pa.array(~late)), after

    def end(self) -> None:
        """Ends the stream: no tuple will follow."""
        self._refuse_beside_pocket()
        with self._lock:
            if self._missing:
                raise SourceError(
                    f"stream {self.stream.name} is being given again from its log",
                    remedy="Try again in a moment.",
                )
            if self._log and not self.outlet.ended:
                notes = self._pushed.news("", 0)
                end = Entry(self.outlet.last + 1, 0, END_WATERMARK, notes=notes)
                self._log.append(end, sync=self._power)
            self.outlet.end()

    def _refuse_beside_pocket(self) -> None:
        if self.pocket:
            raise SourceError(
                f"stream {self.stream.name} is filled by pocket {self.pocket}",
                remedy="Push into a stream of your own.",
            )

    def _refuse_after_end(self) -> None:
        if self.error:
            raise self.error
        if self.outlet.ended:
            raise SourceError(f"stream {self.stream.name} has ended")

    def _times_given(self, table: pa.Table) -> bool:
        """Whether the rows have event times. Raises SourceError if they do not fit this stream."""
        timed = EVENT_TIME in table.schema.names
        expected = self.schema() if timed else self.schema().remove(len(self.schema()) - 1)
        if table.schema != expected:
            raise SourceError(
                f"stream {self.stream.name} takes {_shown(expected)}, not {_shown(table.schema)}"
            )
        return timed

    # -- the clock -------------------------------------------------------------------------------

    def _follow_clock(self) -> None:
        if not (self._pushed.timed or self._beating):
            self._beating = True
            beats.every(self._heartbeat_s, self._beat)

    def _beat(self) -> bool:
        """Moves the watermark: windows over a stream that is pushed into now and then must close in
        between too.
        """
        if self._stopped.is_set() or self.outlet.ended:
            return False
        if self._lock.acquire(blocking=False):  # else something is coming
            try:
                if not (self.pocket or self.outlet.ended or self._stopped.is_set()):
                    self._promise(self._pushed.arrival(time.time_ns() // 1000))
                    self._problem = ""
            except StorageError as error:  # nothing was promised; the next beat tries again
                self._problem = error.line()
            finally:
                self._lock.release()
        return True

    def _promise(self, state: Pushed) -> None:
        """Promises that no later tuple has an event time below it, even if we die now: so it is
        kept first.
        """
        if self._log and state.newest > self._promised:
            ahead = state.arrival(state.newest + PROMISE_US)
            notes = ahead.news("", 0)
            if self._log.last != self.outlet.last:
                self._log.begin_after(self.outlet.last)
            promise = Entry(self.outlet.last + 1, 0, ahead.watermark, notes=notes)
            self._log.append(promise, sync=self._power)
            self._promised = ahead.newest
        self._pushed = state
        self.outlet.append([], state.watermark)

    # -- reports ---------------------------------------------------------------------------------

    def _count(self) -> float:
        """Tuples a second, whoever gives them. Reports ask for it every second or so, one thread at
        a time. It does not take our lock, because the lock's holder waits for the runtime, in which
        reports are made.
        """
        now = time.monotonic()
        new, self._counted = self.outlet.last - self._counted, self.outlet.last
        self._rate.add(now, new)
        return self._rate.per_second(now)

    def report(self) -> SourceReport:
        return SourceReport(
            stream=self.stream.name,
            site=self.stream.site,
            state=self.state,
            finite=self.finite,
            error=self.error.report() if self.error else None,
            failed_at=None,
            problem=self._problem,
            rows=self.outlet.last,
            newest=None,
            late=self._pushed.late,
            skipped=0,
            shed=0,
            replayed=0,
            to_replay=0,
            rate=self._count(),
        )


def _decided(state: Pushed, timed: bool) -> Pushed:
    return state.learned({"timed": timed})


def encoded(table: pa.Table) -> str:
    """The table in the form in which the body of an action carries it."""
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    return base64.b64encode(out.getvalue()).decode()


def decoded(text: str) -> pa.Table:
    return pa.ipc.open_stream(base64.b64decode(text)).read_all()


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
