"""Builds, from the description of a stream or task, the parts that run it."""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
from pyspark.sql import SparkSession

from anabranch.config.cluster import ClusterConfig
from anabranch.config.model import SiteSettings
from anabranch.connectors import Sink, make_sink, make_source, make_table
from anabranch.connectors.sink import SinkContext
from anabranch.connectors.source import Source, SourceContext
from anabranch.connectors.table import TableContext, TableReader
from anabranch.disk.real import RealFolder
from anabranch.errors import ConfigError, SinkError, SiteError, SourceError
from anabranch.link.inlet import Budget, LiveInlet
from anabranch.link.outlet import LiveOutlet
from anabranch.link.reports import PlanReport
from anabranch.link.store import DiskBudget, KeptLog, Shelves
from anabranch.link.wire import (
    EVENT_TIME,
    PACKED,
    POSITION,
    ArrowBatches,
    Unpack,
    unpacker,
    wire_schema,
)
from anabranch.log.spills import Spills
from anabranch.log.stream_log import SEGMENT_BYTES, StreamLog, remove_log
from anabranch.plan.catalog import StreamDef, TableDef
from anabranch.plan.keep import Keep
from anabranch.plan.operators import Aggregate, Call, Column, Join, Union
from anabranch.plan.places import Looked, Place
from anabranch.plan.stage import Stage
from anabranch.plan.tasks import TaskInput, TaskSpec
from anabranch.runtime.loop import Loop
from anabranch.site.programs.pocket import PocketBody
from anabranch.site.programs.snapshots import KeptState, Snapshots
from anabranch.site.sources.ingest import Ingest, SourceStream
from anabranch.site.sources.journal import SEGMENT, Journal
from anabranch.site.sources.open_stream import OpenStream
from anabranch.site.sources.pace import Pace
from anabranch.site.sources.shedder import Shedder
from anabranch.site.sources.table import TableIngest
from anabranch.site.tasks.aggregate import AggregateBody
from anabranch.site.tasks.body import Body, SelectionBody, UnionBody
from anabranch.site.tasks.calibration import InSlot, calibrated
from anabranch.site.tasks.executor import Executor
from anabranch.site.tasks.join import JoinBody
from anabranch.site.tasks.measures import InstanceCost
from anabranch.site.tasks.restart_points import PointsFile
from anabranch.site.tasks.sink import SinkBody, SinkTask
from anabranch.site.tasks.snapshots import States
from anabranch.site.tasks.task import Owner, Task
from anabranch.spark.jobs import SparkJobs
from anabranch.spark.kept.expressions import Expressions, Mode
from anabranch.spark.memory import footprint
from anabranch.spark.session import arrow_schema
from anabranch.stage.results import stage_source
from anabranch.stream.batch import Batch


@cache
def queue_budget(runtime: Loop, total: int) -> Budget:
    """The queue budget of this process: sites that share the process share their queues' memory."""
    return Budget(runtime, total)


@cache
def kept_budget(runtime: Loop, total: int) -> Budget:
    """The same as `queue_budget`, for what outlets keep in memory."""
    return Budget(runtime, total)


IN_MEMORY = 2
"""What the outlets of a process keep there, as a multiple of what its inlets hold: at full speed a
tuple is kept at every hop until those behind do not need it any more."""
AHEAD_US = 500_000
"""Sources that make tuples make them about a second ahead."""

_KEPT = re.compile(r"(.+?)(?:\.journal\.\d{8}|(?:\+kept)?\.\d{20}\.log|\.table|\.state|\.pocket)")
"""The files and folders of streams and tasks; the group is what those are called there."""
PARTS = 8
"""The log of a KEEP with bytes has at least so many parts: one of them is what it has less."""

STAGE_SEGMENT = 50
"""Entries of a journal that are forgotten together: until then a stage keeps their windows."""


class Builder:
    """Builds what a site runs. Everything is checked here and nothing is started."""

    def __init__(
        self,
        cluster: ClusterConfig,
        spark: SparkSession,
        state: RealFolder | None,
        runtime: Loop,
        site: SiteSettings,
        executor: Executor,
        points: PointsFile,
        states: States,
    ) -> None:
        """What uses Spark and is no task instance runs in a slot of `executor`. `points` are those
        of this site, and so are `states`."""
        self._points = points
        self._states = states
        self._moved: dict[str, str] = {}
        """Stream of a stage that has moved → what its files are called."""
        self._runtime = runtime
        self._plans: Mode = site.plans
        self._batch = site.batch
        self._executor = executor
        self._spark = spark
        self._state = state
        self._synced = cluster.durability == "power"
        self._limit = cluster.queue_bytes
        self._budget = queue_budget(runtime, cluster.queue_bytes)
        self._heartbeat_s = cluster.heartbeat_interval_us / 1e6
        self.disk = DiskBudget(site.disk, lets_go=site.disk_full == "let go")
        memory = kept_budget(runtime, IN_MEMORY * cluster.queue_bytes)
        self._shelves = Shelves(memory, self.disk, Spills(state).new) if state else None

    def source(self, definition: StreamDef | TableDef, *, resume: bool) -> SourceStream:
        """The stream of a source. Raises ConfigError or SourceError if the source is not there or
        its options are wrong.
        """
        record = None
        if isinstance(definition, StreamDef):
            record = self._record(definition.name, definition.keep, resume=resume)
        table = isinstance(definition, TableDef)
        outlet = self._outlet(definition.name, definition.wire_columns, record, whole=table)
        if isinstance(definition, TableDef):
            log = self._kept(definition.name, ".table", resume=resume)
            return TableIngest(definition, outlet, self._reader(definition, resume=resume), log)
        if definition.stage:
            return self._staged(definition, definition.stage, outlet, resume=resume)
        if definition.source is None:
            return self._open(definition, outlet, resume=resume)
        return self._ingest(definition, definition.source, outlet, resume=resume)

    def check_source(self, definition: StreamDef | TableDef) -> Looked:
        """Raises what `source` would, and touches nothing: a source of that name may be running."""
        if isinstance(definition, TableDef):
            reader = self._reader(definition)
            reader.close()
            return Looked(_places(reader, definition.source, definition.base))
        if not definition.source:
            return Looked([])
        source = self._connector(
            definition, definition.source, threading.Event(), lambda rows: None
        )
        source.close()
        return Looked(_places(source, definition.source, definition.base))

    def check_sink(self, spec: TaskSpec) -> Looked:
        """Raises what `task` would because of its sink, and touches nothing."""
        if spec.sink is None:
            return Looked([])
        sink = self._sink(spec, spec.sink, resume=False)
        places = _places(sink, spec.sink, spec.base)
        try:
            sink.check_own()
            note = sink.check_new()
        except ConfigError as error:
            return Looked(places, error)
        return Looked(places, note=note)

    def plans(self, spec: TaskSpec) -> tuple[PlanReport, ...]:
        """How its expressions would be evaluated. Nothing is kept."""
        jobs = SparkJobs(self._spark, spec.name, per_instance=False)
        expressions = self._expressions(spec, jobs)
        self._body(spec, expressions, resume=False)
        try:
            return expressions.planned()
        finally:
            expressions.close()

    def calibrated(self, spec: TaskSpec, in_slot: InSlot) -> InstanceCost | None:
        """The cost of an instance of it, from a trial. Nothing is kept."""
        jobs = SparkJobs(self._spark, spec.name, per_instance=False)
        body = self._body(spec, self._expressions(spec, jobs), resume=False)
        schemas = [wire_schema(arrow_schema(one.columns)) for one in spec.inputs]
        return calibrated(body, schemas, in_slot)

    def _reader(self, table: TableDef, *, resume: bool = False) -> TableReader:
        context = TableContext(
            table=table.name,
            schema=arrow_schema(table.columns),
            options=table.source.opened(),
            base=Path(table.base or "."),
            resume=resume,
        )
        return make_table(table.source.name, context)

    def _ingest(
        self, stream: StreamDef, source: Call, outlet: LiveOutlet[Any], *, resume: bool
    ) -> Ingest:
        """The ingest of a source. Raises ConfigError or SourceError if the source is not there or
        its options are wrong.
        """
        make = partial(self._connector, stream, source, resume=resume, begins=not resume)
        journal = self._journal(stream.name, resume=resume)
        pace = Pace(outlet, self._budget, footprint.excess)
        shedder = (
            Shedder(
                self._spark,
                stream.shed,
                arrow_schema(stream.columns),
                self._plans,
                partial(self._in_slot, 0),  # tuples wait for it that have come already
            )
            if stream.shed
            else None
        )
        return Ingest(
            stream, outlet, make, self._heartbeat_s, journal, pace, shedder, synced=self._synced
        )

    def _open(self, stream: StreamDef, outlet: LiveOutlet[Any], *, resume: bool) -> OpenStream:
        if self._state is None:
            return OpenStream(stream, outlet, self._heartbeat_s)
        name = quote(stream.name, safe="")
        if not resume:
            remove_log(self._state, name)
        return OpenStream(stream, outlet, self._heartbeat_s, self._state, name, power=self._synced)

    def _staged(
        self, stream: StreamDef, stage: Stage, outlet: LiveOutlet[Any], *, resume: bool
    ) -> Ingest:
        name = f"{stream.name}.{stage.moves}" if stage.moves else stream.name
        if stage.moves:
            self._moved[stream.name] = quote(name, safe="")
        journal = self._journal(name, resume=resume, segment=STAGE_SEGMENT)
        folder = self._kept_folder(name, resume=resume)

        def make(stopped: threading.Event, skipped: Callable[[int], None]) -> Source:
            return stage_source(self._spark, stage, arrow_schema(stream.columns), folder, stopped)

        return Ingest(stream, outlet, make, self._heartbeat_s, journal, synced=self._synced)

    def _connector(
        self,
        stream: StreamDef,
        source: Call,
        stopped: threading.Event,
        skipped: Callable[[int], None],
        *,
        resume: bool = False,
        begins: bool = False,
    ) -> Source:
        context = SourceContext(
            stream=stream.name,
            schema=arrow_schema(stream.columns),
            timestamp=stream.timestamp,
            unit=stream.unit,
            resume=resume,
            begins=begins,
            options=source.opened(),
            base=Path(stream.base or "."),
            spark=lambda: self._spark,
            stopped=stopped,
            skipped=skipped,
            plans=self._plans,
            in_slot=partial(self._in_slot, AHEAD_US),
        )
        return make_source(source.name, context)

    def _in_slot(self, within_us: int, do: Callable[[], pa.Table]) -> pa.Table:
        """Runs a source's work between task instances, as if it were due this soon."""
        made = self._executor.run(do, time.time_ns() // 1000 + within_us)
        if made is None:
            raise SiteError("this site is about to end")
        return made

    def _kept(self, stream: str, suffix: str, *, resume: bool) -> Path | None:
        """The file that survives the process; empty unless the stream goes on where it was."""
        if self._state is None:
            return None
        name = f"{quote(stream, safe='')}{suffix}"
        if not resume:
            self._state.remove(name)
        return self._state.path / name

    def _journal(self, stream: str, *, resume: bool, segment: int = SEGMENT) -> Journal | None:
        """The journal; empty unless the stream goes on where it was."""
        if self._state is None:
            return None
        name = f"{quote(stream, safe='')}.journal"
        if not resume:
            Journal.forget(self._state, name)
        return Journal(self._state, name, segment)

    def _kept_folder(self, stream: str, *, resume: bool) -> Path | None:
        """The same as `_kept`, for a folder."""
        if self._state is None:
            return None
        path = self._state.path / f"{quote(stream, safe='')}.state"
        if not resume:
            shutil.rmtree(path, ignore_errors=True)
        return path

    def task(
        self, spec: TaskSpec, outlets: Mapping[str, LiveOutlet[Any]], owner: Owner, *, resume: bool
    ) -> Task:
        """The task. Raises ConfigError or SinkError if its sink cannot be written to. A pocket's
        output goes to one of the existing `outlets`.
        """
        inlets = self.inlets(spec)
        outlet = outlets.get(spec.output) if spec.pocket and spec.output else None
        if outlet and outlet.ended:
            raise SourceError(
                f"its output stream {spec.output} has ended", remedy="Drop and create the stream."
            )
        if outlet is None and spec.output:
            record = self._record(spec.output, spec.keep, resume=resume)
            outlet = self._outlet(spec.output, spec.columns, record)
        # Expressions name their jobs, if they run any.
        own = bool(spec.pocket or (spec.sink and spec.sink.name == "spark"))
        jobs = SparkJobs(self._spark, spec.name, per_instance=own)
        expressions = self._expressions(spec, jobs)
        body = self._body(spec, expressions, self._snapshots(spec, resume=resume), resume=resume)
        make = SinkTask if spec.sink else Task
        return make(
            self._runtime,
            owner,
            spec,
            body,
            inlets,
            outlet,
            jobs,
            expressions.report,
            self._batch,
            self._states,
        )

    def inlets(self, spec: TaskSpec) -> list[LiveInlet[Any]]:
        limit, budget = self._limit, self._budget
        return [LiveInlet(one.stream, limit=limit, budget=budget) for one in spec.inputs]

    def _snapshots(self, spec: TaskSpec, *, resume: bool) -> Snapshots | None:
        """The place where a pocket with a state keeps it. Nothing is deleted before it is
        started.
        """
        if self._state is None or spec.pocket is None or not spec.pocket.remembers:
            return None
        folder = RealFolder(self._state.path / f"{quote(spec.name, safe='')}.pocket")
        return Snapshots(KeptState(folder, partial(self._points.kept, spec.name)), resume=resume)

    def _body(
        self,
        spec: TaskSpec,
        expressions: Expressions,
        snapshots: Snapshots | None = None,
        *,
        resume: bool,
    ) -> Body:
        if spec.sink:
            return self._sink_body(spec, spec.sink, resume=resume)
        if spec.pocket:
            columns = arrow_schema(spec.inputs[0].columns), arrow_schema(spec.columns)
            return PocketBody(self._spark, spec.name, spec.pocket, *columns, snapshots)
        inputs = [(one.alias, arrow_schema(one.columns)) for one in spec.inputs]
        output = arrow_schema(spec.columns)
        if isinstance(spec.operators[0], Join):
            return JoinBody(expressions, inputs, spec.operators, output)
        if isinstance(spec.operators[0], Union):
            columns = inputs[0][1]
            behind = SelectionBody(expressions, spec.operators[1:], columns, output)
            return UnionBody(behind, columns, len(inputs))
        ((alias, columns),) = inputs
        if any(isinstance(one, Aggregate) for one in spec.operators):
            return AggregateBody(expressions, alias, columns, spec.operators, output)
        return SelectionBody(expressions, spec.operators, columns, output)

    def _expressions(self, spec: TaskSpec, jobs: SparkJobs) -> Expressions:
        def name_job(rows: int) -> None:
            jobs.name(f"{spec.name}: {rows} tuples")

        # Where something is due, none is tried as a job: the trial itself would be late.
        mode = "kept" if spec.urgency and self._plans == "auto" else self._plans
        return Expressions(self._spark, mode, name_job)

    def _sink_body(self, spec: TaskSpec, sink: Call, *, resume: bool) -> SinkBody:
        def make(resume: bool) -> Sink:
            made = self._sink(spec, sink, resume=resume)
            made.check_own()
            return made

        return SinkBody(make, arrow_schema(spec.inputs[0].columns), resume=resume)

    def _sink(self, spec: TaskSpec, sink: Call, *, resume: bool) -> Sink:
        columns_in = arrow_schema(spec.inputs[0].columns)
        extra = [pa.field(POSITION, pa.int64()), pa.field(EVENT_TIME, pa.int64())]
        context = SinkContext(
            query=spec.query,
            schema=pa.schema([*columns_in, *extra]),
            options=sink.opened(),
            base=Path(spec.base or "."),
            spark=lambda: self._spark,
            run=spec.run,
            resume=resume,
            once=spec.once,
        )
        made = make_sink(sink.name, context)
        if resume and made.lasting and not made.resumable:
            raise SinkError(
                f"a {sink.name} sink cannot go on where it was",
                remedy="Drop the query and create it again.",
            )
        return made

    def _record(self, stream: str, keep: Keep | None, *, resume: bool) -> KeptLog | None:
        """Empty unless we are to go on where we were."""
        if keep is None:
            return None
        if self._state is None:
            raise ConfigError(
                "this site has no state folder, so it cannot KEEP anything",
                remedy="Start it with --state.",
            )
        name = f"{quote(stream, safe='')}+kept"
        if not resume:
            remove_log(self._state, name)
        most = keep.bytes or PARTS * SEGMENT_BYTES
        size = min(SEGMENT_BYTES, max(1, most // PARTS))
        return KeptLog(StreamLog(self._state, name, segment_bytes=size), keep, self._synced)

    def _outlet(
        self,
        stream: str,
        columns: tuple[Column, ...],
        record: KeptLog | None = None,
        *,
        whole: bool = False,
    ) -> LiveOutlet[Any]:
        schema = wire_schema(arrow_schema(columns))
        # What waits is better off at the consumer: an outlet needs enough to keep its link busy.
        limit = max(1, self._limit // 4)
        return LiveOutlet(
            self._runtime,
            stream,
            ArrowBatches(schema),
            limit=limit,
            heartbeat_s=self._heartbeat_s,
            whole=whole,
            shelves=self._shelves,
            record=record,
        )

    def forget(self, streams: Iterable[str], tasks: Iterable[str]) -> None:
        """They were dropped: nothing that is kept of them is needed."""
        if self._state is None:
            return
        names = {quote(name, safe="") for name in (*streams, *tasks)}
        names |= {self._moved.pop(name) for name in streams if name in self._moved}
        for path in self._state.path.iterdir():
            kept = _KEPT.fullmatch(path.name)
            if kept is None or kept[1] not in names:
                continue
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                self._state.remove(path.name)

    def unpacker(self, source: TaskInput, codec: str | None) -> Unpack:
        """How to unpack shipments. What was shipped within the process was not packed."""
        if codec is None:
            return _same
        unpack = unpacker(wire_schema(arrow_schema(source.columns)), codec)
        return lambda batch: unpack(batch) if batch.data.schema.equals(PACKED) else batch

    def pocket_executor(self, name: str) -> Executor:
        return Executor(self._runtime, f"pocket-{name}", 1)


def _places(connector: Source | Sink | TableReader, call: Call, base: str) -> list[Place]:
    return connector.places(call.opened(), Path(base or "."))


def _same(batch: Batch[Any]) -> Batch[Any]:
    return batch
