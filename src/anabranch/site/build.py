"""From the description of a stream or task to the parts that run it."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
from pyspark.sql import SparkSession

from anabranch.config.cluster import Cluster
from anabranch.errors import SinkError, SourceError
from anabranch.link.budget import Budget
from anabranch.link.inlet import LiveInlet
from anabranch.link.outlet import LiveOutlet
from anabranch.link.wire import EVENT_TIME, POSITION, wire_schema
from anabranch.plan.catalog import StreamDef, TableDef
from anabranch.plan.operators import Aggregate, Call, Column, Join
from anabranch.plan.tasks import TaskSpec
from anabranch.site.aggregate import AggregateBody
from anabranch.site.body import Body, SelectionBody, SinkBody
from anabranch.site.footprint import footprint
from anabranch.site.ingest import Ingest
from anabranch.site.join import JoinBody
from anabranch.site.journal import Journal
from anabranch.site.open_stream import OpenStream
from anabranch.site.pace import Pace
from anabranch.site.pocket import PocketBody
from anabranch.site.sinks import make_sink
from anabranch.site.sinks.base import Resumable, SinkContext
from anabranch.site.source import Source
from anabranch.site.spark import arrow_schema
from anabranch.site.table import TableIngest
from anabranch.site.tables import make_table
from anabranch.site.tables.base import TableContext, TableReader
from anabranch.site.task import Task
from anabranch.site.wrappers import make_wrapper
from anabranch.site.wrappers.base import SourceContext, Wrapper


@functools.cache
def queue_budget(total: int) -> Budget:
    """The one of this process: sites that share it share their queues' memory."""
    return Budget(total)


class Builder:
    """Builds what a site runs. Everything is checked here and nothing is started."""

    def __init__(self, cluster: Cluster, spark: SparkSession, state: Path | None) -> None:
        self._spark = spark
        self._state = state
        self._limit = cluster.queue_bytes
        self._budget = queue_budget(cluster.queue_bytes)
        self._heartbeat_s = cluster.heartbeat_interval_us / 1e6

    def source(self, definition: StreamDef | TableDef, *, resume: bool) -> Source:
        """Raises ConfigError or SourceError if the source is not there or its options are wrong."""
        table = isinstance(definition, TableDef)
        outlet = self._outlet(definition.name, definition.wire_columns, whole=table)
        if isinstance(definition, TableDef):
            log = self._kept(definition.name, ".table", resume=resume)
            return TableIngest(definition, outlet, self._reader(definition), log)
        if definition.source is None:
            return OpenStream(definition, outlet, self._heartbeat_s)
        return self._ingest(definition, definition.source, outlet, resume=resume)

    def check_source(self, definition: StreamDef | TableDef) -> None:
        """Raises what `source` would, and touches nothing: one of that name may be running."""
        if isinstance(definition, TableDef):
            self._reader(definition).close()
        elif definition.source:
            self._wrapper(definition, definition.source, threading.Event(), lambda rows: None)

    def check_sink(self, spec: TaskSpec) -> None:
        """Raises what `task` would because of its sink, and touches nothing."""
        if spec.sink:
            self._sink_body(spec, spec.sink, resume=False)

    def _reader(self, table: TableDef) -> TableReader:
        context = TableContext(
            table=table.name,
            schema=arrow_schema(table.columns),
            options=table.source.options,
            base=Path(table.base or "."),
        )
        return make_table(table.source.name, context)

    def _ingest(
        self, stream: StreamDef, source: Call, outlet: LiveOutlet, *, resume: bool
    ) -> Ingest:
        """Raises ConfigError or SourceError if the source is not there or its options are wrong."""
        make = functools.partial(self._wrapper, stream, source)
        kept = self._kept(stream.name, ".journal", resume=resume)
        journal = Journal(kept) if kept else None
        pace = Pace(outlet, self._budget, footprint.excess)
        return Ingest(stream, outlet, make, self._heartbeat_s, journal, pace)

    def _wrapper(
        self,
        stream: StreamDef,
        source: Call,
        stopped: threading.Event,
        skipped: Callable[[int], None],
    ) -> Wrapper:
        context = SourceContext(
            stream=stream.name,
            schema=arrow_schema(stream.columns),
            timestamp=stream.timestamp,
            options=source.options,
            base=Path(stream.base or "."),
            spark=lambda: self._spark,
            stopped=stopped,
            skipped=skipped,
        )
        return make_wrapper(source.name, context)

    def _kept(self, stream: str, suffix: str, *, resume: bool) -> Path | None:
        """The file that survives us; empty unless we are to go on where we were."""
        if self._state is None:
            return None
        path = self._state / f"{quote(stream, safe='')}{suffix}"
        if not resume:
            path.unlink(missing_ok=True)
        return path

    def task(self, spec: TaskSpec, outlets: Mapping[str, LiveOutlet], *, resume: bool) -> Task:
        """Raises ConfigError or SinkError if its sink cannot be written to. A pocket's output goes
        to one of the `outlets` that are there already."""
        inlets = self.inlets(spec)
        outlet = outlets.get(spec.output) if spec.pocket and spec.output else None
        if outlet and outlet.ended:
            raise SourceError(
                f"its output stream {spec.output} has ended", remedy="Drop and create the stream."
            )
        if outlet is None and spec.output:
            outlet = self._outlet(spec.output, spec.columns)
        return Task(spec, self._body(spec, resume=resume), inlets, outlet, self._name_job)

    def inlets(self, spec: TaskSpec) -> list[LiveInlet]:
        limit, budget = self._limit, self._budget
        return [LiveInlet(one.stream, limit=limit, budget=budget) for one in spec.inputs]

    def _body(self, spec: TaskSpec, *, resume: bool) -> Body:
        if spec.sink:
            return self._sink_body(spec, spec.sink, resume=resume)
        if spec.pocket:
            columns = arrow_schema(spec.inputs[0].columns), arrow_schema(spec.columns)
            return PocketBody(self._spark, spec.name, spec.pocket, *columns)
        inputs = [(one.alias, arrow_schema(one.columns)) for one in spec.inputs]
        output = arrow_schema(spec.columns)
        if isinstance(spec.operators[0], Join):
            return JoinBody(self._spark, inputs, spec.operators, output)
        ((alias, columns),) = inputs
        if any(isinstance(one, Aggregate) for one in spec.operators):
            return AggregateBody(self._spark, alias, columns, spec.operators, output)
        return SelectionBody(self._spark, spec.operators, columns, output)

    def _sink_body(self, spec: TaskSpec, sink: Call, *, resume: bool) -> SinkBody:
        columns_in = arrow_schema(spec.inputs[0].columns)
        extra = [pa.field(POSITION, pa.int64()), pa.field(EVENT_TIME, pa.int64())]
        context = SinkContext(
            query=spec.query,
            schema=pa.schema([*columns_in, *extra]),
            options=sink.options,
            base=Path(spec.base or "."),
            spark=lambda: self._spark,
            run=spec.run,
            resume=resume,
        )
        made = make_sink(sink.name, context)
        if resume and sink.name != "console" and not isinstance(made, Resumable):
            raise SinkError(
                f"a {sink.name} sink cannot go on where it was",
                remedy="Drop the query and create it again.",
            )
        return SinkBody(made, columns_in)

    def _outlet(
        self, stream: str, columns: tuple[Column, ...], *, whole: bool = False
    ) -> LiveOutlet:
        schema = wire_schema(arrow_schema(columns))
        # What waits is better off at the consumer: an outlet needs enough to keep its link busy.
        limit = max(1, self._limit // 4)
        return LiveOutlet(stream, schema, limit=limit, heartbeat_s=self._heartbeat_s, whole=whole)

    def _name_job(self, group: str, description: str) -> None:
        self._spark.sparkContext.setJobGroup(group, description)
