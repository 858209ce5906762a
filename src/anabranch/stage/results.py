"""The streams of a stage as sources of their sites, by their role. They yield window results in
the order (end, key).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from pyspark.sql import SparkSession

from anabranch.connectors.source import Cursor, Source
from anabranch.link.reports import SourceNews
from anabranch.link.wire import EVENT_TIME
from anabranch.plan.stage import Stage
from anabranch.plan.windows import TimePanes
from anabranch.spark.session import arrow_schema
from anabranch.stage.late import LateTuples
from anabranch.stage.merged import MergedRun
from anabranch.stage.partials import PartialsSql
from anabranch.stage.run import StageRun, cores, sample_schema
from anabranch.stage.store import partials_of
from anabranch.stage.work import input_of
from anabranch.stream.batch import START_WATERMARK
from anabranch.window.panes import Grid


class WindowSource(Protocol):
    """Where results come from."""

    @property
    def finite(self) -> bool: ...
    def start(self) -> None: ...
    def close(self) -> None: ...
    def windows(self, after: int) -> Iterator[tuple[pa.Table, int]]: ...
    def results(self, after: int, upto: int) -> pa.Table: ...
    def state(self) -> tuple[pa.Table, dict[str, int]]: ...
    def release(self, upto: int, given: int) -> None: ...
    def released(self) -> tuple[int, int]: ...
    def report(self) -> SourceNews: ...


def grid_of(stage: Stage) -> Grid:
    panes = stage.aggregate.panes
    assert isinstance(panes, TimePanes)
    return Grid(panes.width_us, panes.slide_us)


class StageResults(Source):
    """A source that can be read again. A cursor is the end of the last window given. `all` has the
    state of all servers, if `run` has not.
    """

    replayable = True
    releasing = True
    own_time = True
    historic = True

    def __init__(
        self, stage: Stage, columns: pa.Schema, run: WindowSource, all: WindowSource | None = None
    ) -> None:
        self._grid = grid_of(stage)
        self._schema = columns.append(pa.field(EVENT_TIME, pa.int64()))
        self._run = run
        self._all = all or run
        self._started = False
        self.finite = run.finite

    def read(self) -> Iterator[pa.Table]:
        given = 0
        for table, cursor in self.read_from(self.start_cursor()):
            yield table
            given += len(table)
            self._run.release(cursor["end"], given)

    def start_cursor(self) -> Cursor:
        return {"end": START_WATERMARK}

    def read_from(self, cursor: Cursor) -> Iterator[tuple[pa.Table, Cursor]]:
        self._start()
        for table, end in self._run.windows(cursor["end"]):
            yield self._table(table), {"end": end}

    def reread(self, begin: Cursor, end: Cursor) -> pa.Table:
        self._start()
        return self._table(self._run.results(begin["end"], end["end"]))

    def release(self, cursor: Cursor, position: int) -> None:
        self._run.release(cursor["end"], position)

    def released(self) -> tuple[Cursor, int]:
        self._start()
        end, position = self._run.released()
        return {"end": end}, position

    def state(self) -> tuple[pa.Table, dict[str, int]]:
        """The present results of the windows, and the offsets that they belong to."""
        table, offsets = self._all.state()
        return self._table(table), offsets

    def report(self) -> SourceNews:
        """The news of the source: its late tuples, and what the state is at."""
        return self._run.report()

    def close(self) -> None:
        self._run.close()

    def _start(self) -> None:
        if not self._started:
            self._started = True
            self._run.start()

    def _table(self, results: pa.Table) -> pa.Table:
        """Keys, results, the window's bounds, and its end as event time."""
        starts = results.column("_w").cast(pa.int64())
        number = starts.to_numpy()
        first = number * self._grid.slide
        bounds = [pa.array(first), pa.array(first + self._grid.width)]
        arrays = [*results.drop_columns("_w").columns, *bounds, bounds[1]]
        return pa.table(
            [array.cast(field.type) for array, field in zip(arrays, self._schema, strict=True)],
            schema=self._schema,
        )


class StagePart(Source):
    """A source that gives nothing: its server brings a part of the state to the global database,
    where the reader of the merged results finds it. It ends when all of it is there.
    """

    own_time = True
    historic = True

    def __init__(self, run: StageRun) -> None:
        self._run = run
        self.finite = run.finite

    def read(self) -> Iterator[pa.Table]:
        self._run.start()
        for _ in self._run.finish():
            yield from ()

    def report(self) -> SourceNews:
        return self._run.report()

    def close(self) -> None:
        self._run.close()


def stage_source(
    spark: SparkSession,
    stage: Stage,
    columns: pa.Schema,
    folder: Path | None,
    stopped: threading.Event,
) -> Source:
    """`columns` are those of the stream; `folder` is where the state's checkpoints are."""
    if stage.role == "late":
        return LateTuples(stage, arrow_schema(stage.input.columns), columns, stopped)
    if stage.role == "merge":
        return StageResults(stage, columns, _merged(spark, stage, stopped))
    run = StageRun(spark, stage, folder, slots=cores(spark), stopped=stopped)
    if stage.role == "part":
        return StagePart(run)
    all = _merged(spark, stage, stopped) if stage.parts > 1 else None
    return StageResults(stage, columns, run, all)


def _merged(spark: SparkSession, stage: Stage, stopped: threading.Event) -> MergedRun:
    sample = sample_schema(spark, stage)
    partials = partials_of(PartialsSql(stage), sample.empty_table()).schema
    finite = input_of(stage, arrow_schema(stage.input.columns)).finite
    return MergedRun(stage, partials, grid_of(stage), finite=finite, stopped=stopped)
