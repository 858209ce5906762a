"""Runs a pocket: a user's program between an input and an output stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from anabranch.connectors.python.functions import exception_line, user_place, user_traceback
from anabranch.errors import AnabranchError, StorageError, TaskError
from anabranch.link.reports import PocketReport
from anabranch.link.wire import BORN, EVENT_TIME, wire_schema
from anabranch.plan.spec import Program
from anabranch.pocket import Pocket, by_row, by_time
from anabranch.site.programs.snapshots import Snapshots
from anabranch.site.programs.submission import load_class
from anabranch.site.programs.ticks import Ticks
from anabranch.site.programs.to_arrow import as_rows, as_table
from anabranch.site.tasks.body import Produced, Taken
from anabranch.spark.analyse import complaint
from anabranch.spark.memory import job_memory
from anabranch.stream.batch import END_WATERMARK, START_WATERMARK

ATTEMPTS = 3
START_TIME = 0
"""Of what is given at the end of an input that had no tuples."""
BATCH_ROWS = 65_536
"""Tuples that `process` is given at most."""


class GivenRows(NamedTuple):
    """Rows from one call, and the event time of those without one. None of them can have an earlier
    time than `least`.
    """

    rows: list[Any]
    time: int
    least: int
    born: int


class PocketBody:
    """Its state is its own: its input is not needed again once that is kept."""

    def __init__(
        self,
        spark: SparkSession,
        name: str,
        program: Program,
        columns: pa.Schema,
        output: pa.Schema,
        snapshots: Snapshots | None = None,
    ) -> None:
        """Without `snapshots` it has no state, or is not going to be started again."""
        self._spark = spark
        self._name = name
        self._on_error = program.on_error
        self._input = wire_schema(columns)
        self._shown = [*columns.names, EVENT_TIME]
        self._columns = output
        self._output = wire_schema(output)
        self._watermark = START_WATERMARK
        self._newest = START_WATERMARK
        self._born = 0
        self._class = load_class(program, Pocket)
        self._every_us = program.every_us
        self._ticks = self._no_ticks()
        self._pocket: Pocket | None = None
        self._closed = False
        self._skipped = 0
        self._restarts = 0
        self._traceback = ""
        self._snapshots = snapshots
        if snapshots:
            snapshots.belong_to(self._class)
        self.lost: TaskError | None = None

    def begin_after(self, position: int) -> None:
        if self._snapshots:
            self._snapshots.begin_after(position)

    def open(self, instant: int = START_WATERMARK) -> None:
        """Opens the pocket. Raises TaskError if the pocket cannot be made, or its state cannot be
        kept. A pocket whose state is `lost` is not made.
        """
        self._make()
        if self._snapshots and not self._snapshots.ended:
            self._find_state(self._snapshots)

    def reopen(self, instant: int) -> None:
        self._give_up()
        self._ticks = self._no_ticks()
        self.open(instant)

    def _no_ticks(self) -> Ticks | None:
        return Ticks(self._every_us, self._input) if by_time(self._class) else None

    def _make(self) -> None:
        try:
            self._pocket = self._class()
            self._pocket.open()
        except Exception as error:
            raise self._failed(error) from error

    def _find_state(self, snapshots: Snapshots) -> None:
        try:
            state = snapshots.found()
        except TaskError as error:
            self._give_up()
            self.lost = self._failed(error)
            return
        try:
            if state is None:
                snapshots.keep(snapshots.position, self._state)
            else:
                self._restore(state)
        except Exception as error:
            raise self._failed(error) from error
        snapshots.begun()

    def _state(self) -> dict[str, Any]:
        """All that results depend on; for a pocket that has been closed, only that fact."""
        return {
            "pocket": self._pocket and {"state": self._pocket.snapshot()},
            "watermark": self._watermark,
            "newest": self._newest,
            "born": self._born,
            "skipped": self._skipped,
            "restarts": self._restarts,
            "ticks": self._ticks and self._ticks.state(),
        }

    def _restore(self, state: dict[str, Any]) -> None:
        self._watermark, self._newest = state["watermark"], state["newest"]
        self._born = state["born"]
        self._skipped, self._restarts = state["skipped"], state["restarts"]
        if self._ticks and state.get("ticks"):
            self._ticks.restore(state["ticks"])
        if state["pocket"] is None:
            self._give_up()
        elif self._pocket:
            self._pocket.restore(state["pocket"]["state"])

    def _keep(self, position: int, watermark: int) -> bool:
        """Keeps the state. Returns whether a restart may begin here. A full disk delays nobody: the
        tuples since the last snapshot stay upstream.
        """
        if self._snapshots is None:
            return True
        if watermark != END_WATERMARK and not self._snapshots.due():
            return False
        try:
            self._snapshots.keep(position, self._state)
        except StorageError as error:
            self._traceback = error.line()
            return False
        except TaskError as error:
            raise self._failed(error) from error
        return True

    def _give_up(self) -> None:
        """Gives the pocket up: it is closed, and its last results go nowhere."""
        pocket, self._pocket = self._pocket, None
        if pocket:
            with suppress(Exception):
                as_rows(pocket.close())

    def warm_up(self) -> bool:
        return False

    def step(self, inputs: Sequence[Taken]) -> Produced:
        if self.lost:
            raise self.lost
        (taken,) = inputs
        tuples = taken.table(self._input)
        given = list(self._given(tuples, taken.watermark))
        more = self._ticks is not None and self._ticks.more(taken.watermark)
        watermark = self._ticks.reached if self._ticks and more else taken.watermark
        if watermark == END_WATERMARK > self._watermark:
            given.append(self._end())
        if self._closed:  # it took so long that it was not waited for: its stream may be another's
            raise TaskError(f"pocket {self._name} is dropped")
        self._watermark = max(self._watermark, watermark)
        table = pa.concat_tables([self._output.empty_table(), *given])
        kept = self._keep(taken.last, self._watermark)
        return Produced(table, self._watermark, (taken.last,), restartable=kept, more=more)

    def _given(self, tuples: pa.Table, watermark: int) -> Iterator[pa.Table]:
        """Its results for tuples and ticks, in the order in which it gets them."""
        turns = self._ticks.turns(tuples, watermark) if self._ticks else [tuples]
        rows: list[GivenRows] = []
        for turn in turns:
            if isinstance(turn, int):
                rows.append(self._at(turn))
            elif len(turn):
                self._note(turn)
                if by_row(self._class):
                    rows += self._by_row(turn)
                else:
                    yield self._table(rows)
                    rows = []
                    yield from self._by_batch(turn)
            if len(rows) >= BATCH_ROWS:
                yield self._table(rows)
                rows = []
        yield self._table(rows)

    def _at(self, time: int) -> GivenRows:
        rows = self._attempt(lambda pocket: as_rows(pocket.watermark(time)), 0)
        return GivenRows(rows or [], time, time, self._born)

    def _end(self) -> pa.Table:
        """Its results when it is closed, unless it was closed before its site was."""
        rows = None
        if self._pocket:
            rows = self._attempt(lambda pocket: as_rows(pocket.close()), 0, tries=1)
            self._pocket = None
        time = max(self._newest, START_TIME)
        return self._table([GivenRows(rows or [], time, self._watermark, self._born)])

    def _note(self, table: pa.Table) -> None:
        newest, born = (np.max(table.column(name).to_numpy()) for name in (EVENT_TIME, BORN))
        self._newest, self._born = max(self._newest, int(newest)), int(born)

    def _by_batch(self, tuples: pa.Table) -> Iterator[pa.Table]:
        for start in range(0, len(tuples), BATCH_ROWS):
            batch = tuples.slice(start, BATCH_ROWS)
            content = self._attempt(partial(self._process, batch), len(batch))
            if content is not None:
                columns = (batch.column(name).to_numpy() for name in (EVENT_TIME, BORN))
                time, born = (np.full(len(content), np.max(column)) for column in columns)
                yield self._timed(content, time, np.full(len(content), self._watermark), born)

    def _process(self, table: pa.Table, pocket: Pocket) -> pa.Table:
        with job_memory.job(table.nbytes):
            frame = self._spark.createDataFrame(table.select(self._shown))
            return as_table(pocket.process(frame), self._columns)

    def _by_row(self, tuples: pa.Table) -> Iterator[GivenRows]:
        def give(row: dict[str, Any], pocket: Pocket) -> list[Any]:
            return as_rows(pocket.row(row))

        born = tuples.column(BORN).to_pylist()
        for row, at in zip(tuples.select(self._shown).to_pylist(), born, strict=True):
            time = row[EVENT_TIME]
            yield GivenRows(self._attempt(partial(give, row), 1) or [], time, time, at)

    def _table(self, given: Sequence[GivenRows]) -> pa.Table:
        try:
            content = as_table([row for one in given for row in one.rows], self._columns)
        except TaskError:  # of one that does not fit
            given = [
                one for one in given if self._attempt(partial(self._fits, one.rows), 1, tries=1)
            ]
            content = as_table([row for one in given for row in one.rows], self._columns)
        each = [len(one.rows) for one in given]
        times, least, born = (
            np.repeat(np.array(column, dtype=np.int64), each)
            for column in (
                [one.time for one in given],
                [one.least for one in given],
                [one.born for one in given],
            )
        )
        return self._timed(content, times, least, born)

    def _fits(self, rows: list[Any], pocket: Pocket) -> bool:
        """Returns True, or raises."""
        as_table(rows, self._columns)
        return True

    def _timed(
        self, content: pa.Table, times: np.ndarray, least: np.ndarray, born: np.ndarray
    ) -> pa.Table:
        """The rows with times. `times` are the event times of rows without one, which cannot be
        earlier than `least`.
        """
        own = pc.coalesce(content.column(EVENT_TIME), pa.array(times, pa.int64()))
        extra = [
            pa.array(np.maximum(own.to_numpy(), least), pa.int64()),
            pa.array(born, pa.int64()),
        ]
        return pa.table([*content.columns[:-1], *extra], schema=self._output)

    def _attempt(self, use: Callable[[Pocket], Any], rows: int, tries: int = ATTEMPTS) -> Any:
        """Calls the pocket; None if the `rows` it was given are skipped. Raises TaskError to stop
        it.
        """
        attempts = tries if self._on_error == "restart" else 1
        for left in reversed(range(attempts)):
            assert self._pocket
            try:
                return use(self._pocket)
            except Exception as error:
                failed = self._failed(error)
                if self._on_error == "skip":
                    self._skipped += rows
                    return None
                if not left:
                    raise failed from error
            self._restarts += 1
            self._give_up()
            self._make()
        return None

    def _failed(self, error: Exception) -> TaskError:
        if isinstance(error, AnabranchError):  # of what it gave, not of where it is
            self._traceback = error.line()
            return TaskError(
                f"pocket {self._name} failed: {error.message}",
                place=error.place,
                remedy=error.remedy,
            )
        self._traceback = user_traceback(error)
        lines = exception_line(error).splitlines()
        text = lines[-1 if "Traceback" in str(error) else 0]  # of a Python worker of Spark's
        if isinstance(error, PySparkException) and "Traceback" not in str(error):
            text = complaint(error)
        return TaskError(f"pocket {self._name} failed: {text}", place=user_place(error))

    def close(self) -> None:
        self._closed = True
        pocket, self._pocket = self._pocket, None
        if pocket:
            try:
                as_rows(pocket.close())  # which runs one that yields
            except Exception as error:
                self._traceback = user_traceback(error)

    def report(self) -> PocketReport:
        return PocketReport(self._skipped, self._restarts, self._traceback)
