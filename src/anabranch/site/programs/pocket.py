"""Runs a pocket: a user's program between an input and an output stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from anabranch.connectors.python.functions import exception_line, user_place, user_traceback
from anabranch.errors import AnabranchError, StorageError, TaskError
from anabranch.link.wire import BORN, EVENT_TIME, wire_schema
from anabranch.plan.program import Program
from anabranch.pocket import Pocket, by_row, by_time
from anabranch.site.programs.snapshots import Snapshots
from anabranch.site.programs.to_arrow import as_rows, as_table
from anabranch.site.programs.user_class import load_class
from anabranch.site.tasks.body import Produced, Taken
from anabranch.spark.analyse import complaint
from anabranch.spark.memory import job_memory
from anabranch.stream.batch import END_WATERMARK, START_WATERMARK

ATTEMPTS = 3
START_TIME = 0
"""Of what is given at the end of an input that had no tuples."""
BATCH_ROWS = 65_536
"""Tuples that `process` is given at most."""


class PocketBody:
    """Its state is its own: what it was given is not needed again once that is kept."""

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
        """Raises TaskError if the pocket cannot be made, or its state cannot be kept. A pocket
        whose state is `lost` is not made."""
        self._make()
        if self._snapshots and not self._snapshots.ended:
            self._find_state(self._snapshots)

    def reopen(self, instant: int) -> None:
        self._give_up()
        self.open(instant)

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
        """All that results depend on; of a pocket that has been closed, that it has."""
        return {
            "pocket": self._pocket and {"state": self._pocket.snapshot()},
            "watermark": self._watermark, "newest": self._newest, "born": self._born,
            "skipped": self._skipped, "restarts": self._restarts,
        }  # fmt: skip

    def _restore(self, state: dict[str, Any]) -> None:
        self._watermark, self._newest = state["watermark"], state["newest"]
        self._born = state["born"]
        self._skipped, self._restarts = state["skipped"], state["restarts"]
        if state["pocket"] is None:
            self._give_up()
        elif self._pocket:
            self._pocket.restore(state["pocket"]["state"])

    def _keep(self, position: int, watermark: int) -> bool:
        """Whether a restart may begin here. A disk that is full holds nobody up: what came since
        the last snapshot stays upstream."""
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
        """It is closed, and what it would still have given is nobody's."""
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
        whole = taken.table(self._input)
        run = self._by_row if by_row(self._class) else self._by_batch
        starts = range(0, len(whole), BATCH_ROWS)
        given = [run(whole.slice(start, BATCH_ROWS)) for start in starts]
        if len(whole):
            self._note(whole)
        given += [self._at(taken.watermark)] if taken.watermark > self._watermark else []
        if self._closed:  # it took so long that it was not waited for: its stream may be another's
            raise TaskError(f"pocket {self._name} is dropped")
        self._watermark = max(self._watermark, taken.watermark)
        table = pa.concat_tables([self._output.empty_table(), *given])
        kept = self._keep(taken.last, taken.watermark)
        return Produced(table, self._watermark, (taken.last,), restartable=kept)

    def _at(self, watermark: int) -> pa.Table:
        """What it gives when its input has come so far; at the end, when it is closed."""
        if watermark == END_WATERMARK and self._pocket is None:
            rows = None  # it was closed before its site was
        elif watermark == END_WATERMARK:
            rows = self._attempt(lambda pocket: as_rows(pocket.close()), 0, tries=1)
            self._pocket = None
        elif by_time(self._class):
            rows = self._attempt(lambda pocket: as_rows(pocket.watermark(watermark)), 0)
        else:
            rows = None
        content = as_table(rows or [], self._columns)
        time = max(self._newest, START_TIME) if watermark == END_WATERMARK else watermark
        many = len(content)
        return self._timed(content, np.full(many, time), np.full(many, self._born))

    def _note(self, table: pa.Table) -> None:
        newest, born = (np.max(table.column(name).to_numpy()) for name in (EVENT_TIME, BORN))
        self._newest, self._born = max(self._newest, int(newest)), int(born)

    def _by_batch(self, table: pa.Table) -> pa.Table:
        content = self._attempt(partial(self._process, table), len(table))
        if content is None:
            return self._output.empty_table()
        newest, born = (np.max(table.column(name).to_numpy()) for name in (EVENT_TIME, BORN))
        rows = len(content)
        return self._timed(content, np.full(rows, newest), np.full(rows, born))

    def _process(self, table: pa.Table, pocket: Pocket) -> pa.Table:
        with job_memory.job(table.nbytes):
            frame = self._spark.createDataFrame(table.select(self._shown))
            return as_table(pocket.process(frame), self._columns)

    def _by_row(self, table: pa.Table) -> pa.Table:
        def give(row: dict[str, Any], pocket: Pocket) -> list[Any]:
            return as_rows(pocket.row(row))

        shown = table.select(self._shown).to_pylist()
        given = [self._attempt(partial(give, row), 1) or [] for row in shown]
        try:
            content = as_table([one for rows in given for one in rows], self._columns)
        except TaskError:  # of one that does not fit
            given = [rows if self._attempt(partial(self._fits, rows), 1, tries=1) else []
                     for rows in given]  # fmt: skip
            content = as_table([one for rows in given for one in rows], self._columns)
        each = [len(rows) for rows in given]
        times, born = (np.repeat(table.column(one).to_numpy(), each) for one in (EVENT_TIME, BORN))
        return self._timed(content, times, born, least=times)

    def _fits(self, rows: list[Any], pocket: Pocket) -> bool:
        """Always, or it raises."""
        as_table(rows, self._columns)
        return True

    def _timed(
        self,
        content: pa.Table,
        times: np.ndarray,
        born: np.ndarray,
        least: np.ndarray | int | None = None,
    ) -> pa.Table:
        """`times` are the event times of what set none itself. None falls behind the watermark, or
        behind `least`, which does not depend on how the input was cut."""
        own = pc.coalesce(content.column(EVENT_TIME), pa.array(times, pa.int64()))
        kept = np.maximum(own.to_numpy(), self._watermark if least is None else least)
        extra = [pa.array(kept, pa.int64()), pa.array(born, pa.int64())]
        return pa.table([*content.columns[:-1], *extra], schema=self._output)

    def _attempt(self, use: Callable[[Pocket], Any], rows: int, tries: int = ATTEMPTS) -> Any:
        """`use` the pocket; None if the `rows` it was given are skipped. Raises TaskError to stop
        it."""
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

    def report(self) -> dict[str, Any]:
        """`traceback` is that of the newest exception."""
        return {
            "skipped": self._skipped, "restarts": self._restarts, "traceback": self._traceback,
        }  # fmt: skip
