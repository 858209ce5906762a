"""A stage at work: reads ranges of its source by Spark tasks, writes checkpoints, and gives results
when they are due.

Each range is a Spark job of one task: a task that fails is tried again alone while the others go
on, and none waits for the slowest of a batch.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from anabranch.errors import AnabranchError, SiteError, TaskError, from_dict
from anabranch.link.message import A, Message, read
from anabranch.link.peer import Peer
from anabranch.link.reports import SourceNews, StageReport
from anabranch.link.wire import EVENT_TIME
from anabranch.plan.expressions import plain
from anabranch.plan.stage import Stage
from anabranch.spark.failures import SPARK_ERRORS, cause
from anabranch.spark.inside import from_arrow_schema
from anabranch.spark.jobs import SparkJobs
from anabranch.spark.session import arrow_schema
from anabranch.stage.messages import (
    CALL_S,
    MOVE_S,
    AwaitWindows,
    BeginPartitions,
    DueWindows,
    GetState,
    GetStatus,
    GetWindows,
    ReleaseWindows,
    SaveCheckpoint,
    StateStatus,
    TellEnds,
    WriteCheckpoint,
)
from anabranch.stage.offsets import OffsetRange
from anabranch.stage.partials import SLICE
from anabranch.stage.process import ServerProcess
from anabranch.stage.ranges import Ranges
from anabranch.stage.work import (
    REPORT,
    Report,
    StageWork,
    expressions,
    input_of,
    put_range,
    read_range,
    take_range,
)
from anabranch.stream.batch import END_WATERMARK

T = TypeVar("T")
LOOK_S = 0.2
"""Between two looks for new input, and the longest that a question for results waits."""
STARTS = 3
"""Of a state server that dies while it starts."""
TRIES = 4
"""Of a range whose Spark task was lost."""


class StageRun:
    """Runs from `start` to `close`. Its checkpoints are in `folder`; without one a lost state is
    computed again from the beginning.
    """

    def __init__(
        self,
        spark: SparkSession,
        stage: Stage,
        folder: Path | None,
        *,
        slots: int,
        stopped: threading.Event | None = None,
        checkpoint_s: float | None = None,
    ) -> None:
        """`checkpoint_s` replaces the interval that the stage says."""
        self._spark = spark
        self._stage = stage
        self._stopped = stopped or threading.Event()
        self._jobs = SparkJobs(spark, f"stage of {stage.input.stream}", per_instance=True)
        self._columns = arrow_schema(stage.input.columns)
        self._input = input_of(stage, self._columns, stopped=self._stopped)
        self._sample = sample_schema(spark, stage)
        self._folder = folder
        self._checkpoint_s = stage.every_us / 1e6 if checkpoint_s is None else checkpoint_s
        self._lock = threading.Lock()
        self._server: ServerProcess | None = None
        self._ranges = Ranges(self._input)
        self._failure: AnabranchError | None = None
        self._heard: dict[str, Any] = {}
        self.restarts = 0
        targets = [self._work] * slots + [self._keep]
        self._threads = [
            threading.Thread(target=target, name=f"stage-{number}", daemon=True)
            for number, target in enumerate(targets)
        ]

    @property
    def finite(self) -> bool:
        return self._input.finite

    def start(self) -> None:
        self._serve()
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._stopped.set()
        self._jobs.cancel()
        with self._lock:
            if self._server:
                self._server.close()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(timeout=10)

    # -- the state server -----------------------------------------------------------------------

    @property
    def server(self) -> ServerProcess:
        """A server that runs; if it has died, another is started from the last checkpoint."""
        with self._lock:
            if self._stopped.is_set():
                raise SiteError("the stage is stopped")
            if self._server is None or not self._server.alive:
                if self._server:
                    self._server.close()
                    self.restarts += 1
                self._serve()
            assert self._server is not None
            return self._server

    def _serve(self) -> None:
        """Starts a state server, and another if that dies before it is up."""
        for left in reversed(range(STARTS)):
            try:
                server = ServerProcess(self._stage, self._sample, self._folder)
            except SiteError:
                if not left or self._stopped.is_set():
                    raise
                continue
            try:
                server.peer.send(BeginPartitions(self._input.starts()), CALL_S)
                self._ranges.reset(server)
            except BaseException as error:
                server.close()
                if not isinstance(error, SiteError) or not left:
                    raise
                continue
            self._server = server
            return

    def ask(self, message: Message[A]) -> A:
        """Asks the state server, and the next one if it dies meanwhile."""
        return self._asked(lambda server: server.send(message, CALL_S))

    def _asked(self, ask: Callable[[Peer], T]) -> T:
        while True:
            server = self.server
            try:
                return ask(server.peer)
            except SiteError:
                self._await_end(server)

    def _await_end(self, server: ServerProcess) -> None:
        """Waits for the end of a server that did not answer; if it does not end soon, it is
        killed.
        """
        deadline = time.monotonic() + 1.0
        while server.alive and time.monotonic() < deadline:
            time.sleep(0.01)
        if server.alive:
            server.close()

    # -- results --------------------------------------------------------------------------------

    def windows(self, after: int) -> Iterator[tuple[pa.Table, int]]:
        """Results of the windows that end after `after`, as they become whole, with the end of the
        last window in each table. Returns at the end of the source, or soon after `close`.
        """
        while not self._stopped.is_set():
            due = self._due(after)
            if due.ended:
                return
            if due.end is not None:
                yield self.results(after, due.end), due.end
                after = due.end

    def results(self, after: int, upto: int) -> pa.Table:
        """Results of the windows that end after `after` and up to `upto`; waits until all are
        whole.
        """
        while True:
            if self._due(upto - 1).status.watermark >= upto:
                server = self.server
                try:
                    return server.peer.fetch(GetWindows(after, upto), MOVE_S)[0]
                except SiteError:
                    self._await_end(server)

    def state(self) -> tuple[pa.Table, dict[str, int]]:
        """The present results of windows that are still kept, and the offsets that they belong
        to.
        """
        table, status = self._asked(lambda server: server.fetch(GetState(), MOVE_S))
        return table, status.offsets

    def _due(self, after: int) -> DueWindows:
        self._check()
        due = self.ask(AwaitWindows(after, LOOK_S))
        self._heard = _shown(due.status) | {"end": due.end, "ended": due.ended}
        return due

    def release(self, upto: int, given: int) -> None:
        self.ask(ReleaseWindows(upto, given))

    def released(self) -> tuple[int, int]:
        """The end of the last window that is never needed again, and the number of results up to
        it.
        """
        return self.ask(GetStatus()).released

    def finish(self) -> Iterator[None]:
        """Waits until all input is in, and is in the global database. Yields None now and then."""
        while not self._stopped.is_set():
            self._check()
            status = self.ask(GetStatus())
            self._heard = _shown(status)
            if status.watermark == END_WATERMARK and status.saved:
                return
            yield None
            self._stopped.wait(LOOK_S)

    def report(self) -> SourceNews:
        """The figures for `status`, as last heard."""
        stage = read(StageReport, self._heard)
        stage = replace(stage, restarts=self.restarts, combines=self._ranges.combine)
        return SourceNews(self._heard.get("late", 0), self._heard.get("skipped", 0), stage)

    def spent(self) -> dict[str, float]:
        """Seconds of all tasks so far, by what they were spent on; `flush` is the server's."""
        return self._ranges.spent | {"flush": self.ask(GetStatus()).flush_s}

    def _check(self) -> None:
        if self._failure:
            raise self._failure

    # -- tasks ----------------------------------------------------------------------------------

    def _work(self) -> None:
        """Fills one slot: a range after the other, each as a Spark job."""
        while not self._stopped.is_set():
            try:
                taken = self._ranges.take()
                if taken is None:
                    self._look()
                    self._stopped.wait(LOOK_S / 4)
                elif not self._take(*taken):
                    return
            except AnabranchError as error:
                self._fail(error)
                return

    def _look(self) -> None:
        ends = self._ranges.look()
        if new := self._ranges.unknown(ends):
            self.ask(BeginPartitions(new))
        self._ranges.extend(ends)
        if ends:
            self.ask(TellEnds(ends))

    def _take(self, range: OffsetRange, server: ServerProcess) -> bool:
        """Takes the range. False if the stage must go no further."""
        begun = time.perf_counter()
        try:
            report = self._job(server, range)
        except SPARK_ERRORS as error:
            if self._stopped.is_set():
                return False
            if not self._ranges.again(range, server, TRIES):
                self._fail(TaskError(cause(error)))
                return False
            return True
        failure = from_dict(report.error) if report.error else None
        if isinstance(failure, SiteError):
            self._await_end(server)
            self.ask(GetStatus())  # its successor says which ranges are to be taken again
        elif failure:
            self._fail(failure)
            return False
        else:
            self._ranges.done(range, report, time.perf_counter() - begun)
        return True

    def _fail(self, error: AnabranchError) -> None:
        if not self._stopped.is_set():
            self._failure = self._failure or error

    def _job(self, server: ServerProcess, range: OffsetRange) -> Report:
        self._jobs.begin(f"{self._stage.input.stream}: {range}")
        work = self._work_for(server)
        context = self._spark.sparkContext
        if self._stage.direct:
            task = partial(_on, partial(take_range, work, range))
            (report,) = context.parallelize([0], 1).map(task).collect()
            return report
        tuples = self._spark.range(0, 1, 1, 1).mapInArrow(
            partial(read_range, work, range), from_arrow_schema(tuples_schema(self._stage))
        )
        puts = applied(self._stage, tuples).mapInArrow(
            partial(put_range, work, range), from_arrow_schema(REPORT)
        )
        (row,) = puts.collect()
        report = Report(**row.asDict())
        return replace(report, error=json.loads(report.error) if report.error else None)

    def _work_for(self, server: ServerProcess) -> StageWork:
        schema = self._columns.serialize().to_pybytes()
        address = (server.address.port, server.address.token)
        return StageWork(self._stage.model_dump_json(), schema, address, self._ranges.combine)

    # -- checkpoints ----------------------------------------------------------------------------

    def _keep(self) -> None:
        while not self._stopped.wait(self._checkpoint_s):
            try:
                self.ask(WriteCheckpoint())
                if self._stage.backup:
                    self.ask(SaveCheckpoint())
            except AnabranchError as error:
                self._fail(error)
                return


def _shown(status: StateStatus) -> dict[str, Any]:
    return {name: value for name, value in asdict(status).items() if value is not None}


def applied(stage: Stage, tuples: DataFrame) -> DataFrame:
    """The tuples with conditions, keys and arguments applied by Spark SQL."""
    for condition in stage.conditions:
        tuples = tuples.where(condition.expr.sql(plain))
    items = [f"{expr.sql(plain)} AS {name}" for name, expr in expressions(stage).items()]
    return tuples.selectExpr(SLICE, *items)


def tuples_schema(stage: Stage) -> pa.Schema:
    """The schema that Spark SQL gets: the source's columns, the event time and the slice."""
    times = [pa.field(EVENT_TIME, pa.int64()), pa.field(SLICE, pa.int64())]
    return pa.schema([*arrow_schema(stage.input.columns), *times])


def sample_schema(spark: SparkSession, stage: Stage) -> pa.Schema:
    """The schema of the tuples that are aggregated."""
    empty = spark.createDataFrame(tuples_schema(stage).empty_table())
    schema: pa.Schema = applied(stage, empty).limit(0).toArrow().schema
    return schema


def _on(task: Any, _: int) -> Report:
    report: Report = task()
    return report


def cores(spark: SparkSession) -> int:
    """How many tasks Spark runs at once."""
    master = str(spark.sparkContext.master)
    local = re.match(r"local(?:-cluster)?\[(\d+|\*)", master)
    if local:
        return os.cpu_count() or 1 if local[1] == "*" else int(local[1])
    return 1 if master == "local" else int(spark.conf.get("spark.cores.max", "2") or 2)


def size_of(stage: Stage) -> int:
    """About how many tuples there are in its source now."""
    input = input_of(stage, arrow_schema(stage.input.columns))
    starts, ends = input.starts(), input.ends()
    return int(sum(end - starts.get(name, 0) for name, end in ends.items()) * input.per_offset)
