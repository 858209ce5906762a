"""Sources, bodies and tasks without Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from anabranch.connectors import Source
from anabranch.link.inlet import LiveInlet
from anabranch.link.outlet import LiveOutlet
from anabranch.link.wire import EVENT_TIME, ArrowBatches, wire_schema
from anabranch.plan.catalog import StreamDef
from anabranch.plan.operators import Call, Column
from anabranch.plan.tasks import TaskInput, TaskSpec
from anabranch.site.sources.ingest import Ingest
from anabranch.site.tasks.body import Body, Produced, Taken
from anabranch.site.tasks.task import Owner, Task
from anabranch.spark.jobs import Jobs
from anabranch.stream.batch import START_WATERMARK, Batch
from anabranch.stream.restart import RestartPoint
from tests.link.support import LOOP, an_inlet

T = TypeVar("T", bound=Task)
COLUMNS = pa.schema([("n", pa.int64())])
SCHEMA = wire_schema(COLUMNS)
SPEC_COLUMNS = (Column(name="n", type="bigint"),)


def tuples(first: int, count: int) -> pa.RecordBatch:
    """Whose column and event time are their position, born long ago."""
    column = pa.array(range(first, first + count), pa.int64())
    return pa.RecordBatch.from_arrays([column, column, column], schema=SCHEMA)


def batch(first: int, count: int, watermark: int = START_WATERMARK) -> Batch[pa.RecordBatch]:
    return Batch("S", first, watermark, 0, tuples(first, count))


def an_outlet(stream: str = "out", limit: int = 1 << 30) -> LiveOutlet:
    return LiveOutlet(LOOP, stream, ArrowBatches(SCHEMA), limit=limit, heartbeat_s=0.02)


# -- sources -------------------------------------------------------------------------------------


def source_table(times: Sequence[int], first: int = 0) -> pa.Table:
    columns = [range(first, first + len(times)), times]
    schema = COLUMNS.append(pa.field(EVENT_TIME, pa.int64()))
    return pa.table([pa.array(column, pa.int64()) for column in columns], schema=schema)


class FakeSource(Source):
    """Yields `tables` (each may be a function to be called for it), then ends."""

    finite = True

    def __init__(self, tables: Iterable[Any], stopped: threading.Event, **more: Any) -> None:
        self.tables = tables
        self.stopped = stopped
        self.__dict__.update(more)

    def read(self) -> Iterator[pa.Table]:
        for table in self.tables:
            if callable(table):
                table = table(self.stopped)
            if table is not None:
                yield table


def until_stopped(stopped: threading.Event) -> None:
    """In a source's tables: nothing more comes."""
    stopped.wait(10)


def an_ingest(
    tables: Iterable[Any],
    *,
    lateness_us: int = 0,
    timestamp: str | None = "ts",
    outlet: LiveOutlet | None = None,
    heartbeat_s: float = 0.02,
    ahead_us: int | None = None,
    on_error: str = "fail",
    **more: Any,
) -> Ingest:
    stream = StreamDef(
        name="S",
        columns=SPEC_COLUMNS,
        site="room1",
        source=Call(name="fake", options={"on_error": on_error}),
        timestamp=timestamp,
        lateness_us=lateness_us,
        ahead_us=ahead_us,
    )
    outlet = outlet or an_outlet("S")
    outlet.attach("c")
    return Ingest(
        stream, outlet, lambda stopped, skipped: FakeSource(tables, stopped, **more), heartbeat_s
    )


# -- tasks ---------------------------------------------------------------------------------------


class FakeBody:
    """Passes on the tuples whose number `keep` accepts; `during` is called in each step."""

    def __init__(
        self, keep: Callable[[int], bool] = bool, during: Callable[[], None] = lambda: None
    ) -> None:
        self.keep = keep
        self.during = during
        self.opened = self.closed = self.warmed = 0

    def open(self, instant: int = START_WATERMARK) -> None:
        self.opened += 1

    def warm_up(self) -> bool:
        self.warmed += 1
        return True

    def step(self, inputs: Sequence[Taken]) -> Produced:
        (taken,) = inputs
        table = taken.table(SCHEMA)
        kept = pa.array([self.keep(n) for n in table.column("n").to_pylist()], pa.bool_())
        self.during()
        return Produced(table.filter(kept), taken.watermark, (taken.last,))

    def close(self) -> None:
        self.closed += 1


class NoJobs:
    """Counts how often they were cancelled."""

    def __init__(self) -> None:
        self.cancelled = 0

    def begin(self, description: str) -> None: ...

    def cancel(self) -> None:
        self.cancelled += 1


class Heard:
    """An owner that remembers what it was told of its tasks."""

    def __init__(self) -> None:
        self.points: list[RestartPoint] = []
        self.failures: list[Task] = []
        self.early: list[Task] = []

    def consider(self, task: Task) -> None: ...

    def released(self, task: Task) -> None:
        self.points.append(task.restart_point())

    def failed(self, task: Task) -> None:
        self.failures.append(task)

    def giving(self, task: Task, pieces: Sequence[Any], produced: Produced) -> None: ...

    def ended_early(self, task: Task) -> None:
        self.early.append(task)


def a_task(
    body: Body,
    *,
    outlet: LiveOutlet | None = None,
    jobs: Jobs | None = None,
    owner: Owner | None = None,
    most: int = 1000,
    name: str = "hot",
    stream: str = "S",
    producer: str = "room1",
    kind: type[T] = Task,  # type: ignore[assignment]
) -> tuple[T, LiveInlet]:
    """Whose instances take `most` tuples."""
    source = TaskInput(stream=stream, site=producer, alias="S", columns=SPEC_COLUMNS)
    output = outlet.stream if outlet else None
    spec = TaskSpec(
        name=name,
        query=name,
        site="centre",
        inputs=(source,),
        columns=SPEC_COLUMNS,
        output=output,
    )
    inlet = an_inlet(limit=1 << 30)
    task = kind(LOOP, owner or Heard(), spec, body, [inlet], outlet, jobs or NoJobs(), batch=most)
    return task, inlet


def start(task: Task, point: RestartPoint, epoch: int = 0) -> None:
    LOOP.run(task.start(point, epoch))
