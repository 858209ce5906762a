"""The work of a stage's Spark task, in Spark's Python workers: it reads a range, leaves out what is
late, aggregates the rest, and puts it into the state.

If something must be computed before the aggregation, Spark SQL does it: the task is then two steps
in Python, `read_range` and `put_range`, around Spark's own.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from anabranch.connectors.ahead import far_ahead, skips, too_far
from anabranch.connectors.source import SourceContext
from anabranch.errors import AnabranchError, SourceError
from anabranch.link.peer import Peer
from anabranch.link.wire import EVENT_TIME
from anabranch.plan.expressions import Expr
from anabranch.plan.stage import Stage
from anabranch.plan.windows import TimePanes
from anabranch.stage.inputs import PartitionedInput, Share, make_input
from anabranch.stage.messages import (
    CALL_S,
    MOVE_S,
    SEE_S,
    Address,
    CountRange,
    Counts,
    PutRange,
    SeeRange,
)
from anabranch.stage.offsets import OffsetRange
from anabranch.stage.partials import SLICE, PartialsSql
from anabranch.stream.batch import START_WATERMARK
from anabranch.window import lateness
from anabranch.window.panes import Grid


@dataclass(frozen=True)
class StageWork:
    """What all tasks of a stage know; `columns` is the Arrow schema of the declared columns."""

    stage: str
    columns: bytes
    address: tuple[int, str]
    combine: bool = True


@dataclass(frozen=True)
class Report:
    """How a range went. If it must not be tried again, `error` says why."""

    rows: int = 0
    partials: int = 0
    read_s: float = 0.0
    """Where Spark SQL has nothing to do; else it is in its job's time."""
    aggregate_s: float = 0.0
    put_s: float = 0.0
    error: Any = None


REPORT = pa.schema(
    [
        pa.field("rows", pa.int64()),
        pa.field("partials", pa.int64()),
        pa.field("read_s", pa.float64()),
        pa.field("aggregate_s", pa.float64()),
        pa.field("put_s", pa.float64()),
        pa.field("error", pa.string()),
    ]
)


@lru_cache(4)
def _stage(text: str) -> Stage:
    return Stage.model_validate_json(text)


@lru_cache(2)
def _server(address: tuple[int, str]) -> Peer:
    port, token = address
    return Address(port=port, token=token).peer()


class _Skipped(threading.local):
    """Malformed rows left out since the last call."""

    rows = 0

    def add(self, rows: int) -> None:
        self.rows += rows


_skipped = _Skipped()


@lru_cache(4)
def _input(stage: str, columns: bytes) -> PartitionedInput:
    return input_of(_stage(stage), pa.ipc.read_schema(pa.py_buffer(columns)), _skipped.add)


def input_of(
    stage: Stage,
    columns: pa.Schema,
    skipped: Any = lambda rows: None,
    stopped: threading.Event | None = None,
) -> PartitionedInput:
    read = stage.input
    context = SourceContext(
        stream=read.stream,
        schema=columns,
        timestamp=read.timestamp,
        unit=read.unit,
        options=read.source.opened(),
        base=Path(read.base or "."),
        spark=_no_spark,
        stopped=stopped or threading.Event(),
        skipped=skipped,
    )
    return make_input(read.source.name, context, Share(stage.part, stage.parts, stage.by_file))


def _no_spark() -> Any:
    raise SourceError("a source that needs Spark cannot be read in parts")


def take_range(work: StageWork, range: OffsetRange) -> Report:
    """Does the whole task, where Spark SQL has nothing to do."""
    try:
        stage = _stage(work.stage)
        begun = time.perf_counter()
        tuples = _timely(work, range)
        read_s = time.perf_counter() - begun
        return replace(_put(work, range, _argument_columns(stage, tuples)), read_s=read_s)
    except AnabranchError as error:
        return Report(error=error.to_dict())


def read_range(work: StageWork, range: OffsetRange, _: Iterable[Any]) -> Iterator[pa.RecordBatch]:
    """The timely tuples, with their slices, for Spark SQL."""
    return iter(_timely(work, range).to_batches(65_536))


def put_range(
    work: StageWork, range: OffsetRange, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Puts what Spark SQL has computed; gives the report as JSON."""
    partials = list(batches)
    try:
        report = _put(work, range, pa.Table.from_batches(partials) if partials else None)
    except AnabranchError as error:
        report = Report(error=error.to_dict())
    failure = json.dumps(report.error) if report.error else None
    yield pa.RecordBatch.from_pylist([asdict(report) | {"error": failure}], REPORT)


def _timely(work: StageWork, range: OffsetRange) -> pa.Table:
    """The tuples of `range` that are not late, with `_slice`. It also counts them at the state
    server.
    """
    stage = _stage(work.stage)
    _skipped.rows = 0
    table = _bounded(stage, _input(work.stage, work.columns).read(range))
    times = table.column(EVENT_TIME).to_numpy()
    server = _server(work.address)
    newest = int(times.max()) if len(times) else START_WATERMARK
    before = server.send(SeeRange(range, newest), SEE_S + CALL_S)
    late = lateness.late(times, before, stage.input.lateness_us)
    counts = Counts(newest, len(times), 0, _skipped.rows)
    if late is not None:
        counts = Counts(counts.newest, counts.rows, int(late.sum()), counts.skipped)
        kept = pa.array(~late)
        table, times = table.filter(kept), times[~late]
    server.send(CountRange(range, counts), CALL_S)
    panes = stage.aggregate.panes
    assert isinstance(panes, TimePanes)
    grid = Grid(panes.width_us, panes.slide_us)
    slices = grid.panes(times)
    table = table.append_column(SLICE, pa.array(slices))
    return table if grid.slide <= grid.width else table.filter(pa.array(grid.in_window(slices)))


def _bounded(stage: Stage, table: pa.Table) -> pa.Table:
    """The table without rows that are too far in the future, which are malformed."""
    ahead_us = stage.input.ahead_us
    far = too_far(table, time.time_ns() // 1000, ahead_us)
    if far is None or ahead_us is None:
        return table
    if not skips(stage.input.source):
        raise far_ahead(table, far, ahead_us)
    _skipped.rows += int(far.sum())
    return table.filter(pa.array(~far))


def _argument_columns(stage: Stage, tuples: pa.Table) -> pa.Table:
    """Keys and arguments under the names that the aggregation knows them by."""
    names = expressions(stage)
    columns = [tuples.column(expr.column.column) for expr in names.values() if expr.column]
    return pa.table([tuples.column(SLICE), *columns], names=[SLICE, *names])


def expressions(stage: Stage) -> dict[str, Expr]:
    """The expressions that the aggregation needs: name → expression over the source's columns."""
    keys = {f"_k{number}": key.expr for number, key in enumerate(stage.aggregate.keys)}
    return keys | {f"_a{number}": one for number, one in enumerate(stage.arguments)}


def _put(work: StageWork, range: OffsetRange, tuples: pa.Table | None) -> Report:
    stage = _stage(work.stage)
    begun = time.perf_counter()
    if tuples is None:
        partials = pa.table({SLICE: pa.array([], pa.int64())})
        tuples = partials
    else:
        partials = _aggregate(stage, tuples, combine=work.combine)
    computed = time.perf_counter()
    _server(work.address).bring(PutRange(range), partials, MOVE_S)
    done = time.perf_counter()
    return Report(len(tuples), len(partials), aggregate_s=computed - begun, put_s=done - computed)


def _aggregate(stage: Stage, tuples: pa.Table, *, combine: bool) -> pa.Table:
    sql = PartialsSql(stage)
    db = _duckdb().cursor()
    try:
        db.register("tuples", tuples)
        return db.sql(sql.lift("tuples") if combine else sql.single("tuples")).to_arrow_table()
    finally:
        db.close()


@lru_cache(1)
def _duckdb() -> duckdb.DuckDBPyConnection:
    """The database of this worker. It has one core, because others run beside it."""
    db = duckdb.connect(":memory:")
    db.execute("SET threads = 1")
    return db
