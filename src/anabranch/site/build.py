"""From the description of a stream or task to the parts that run it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from anabranch.config.cluster import Cluster
from anabranch.link.inlet import LiveInlet
from anabranch.link.outlet import LiveOutlet
from anabranch.link.wire import EVENT_TIME, POSITION, wire_schema
from anabranch.plan.catalog import StreamDef
from anabranch.plan.operators import Column
from anabranch.plan.tasks import TaskSpec
from anabranch.site.body import Body, SelectionBody, SinkBody
from anabranch.site.ingest import Ingest
from anabranch.site.sinks import make_sink
from anabranch.site.sinks.base import SinkContext
from anabranch.site.spark import arrow_schema
from anabranch.site.task import Task
from anabranch.site.wrappers import make_wrapper
from anabranch.site.wrappers.base import SourceContext, Wrapper


class Builder:
    """Builds what a site runs. Everything is checked here and nothing is started."""

    def __init__(self, cluster: Cluster, spark: SparkSession) -> None:
        self._spark = spark
        self._limit = cluster.queue_bytes
        self._heartbeat_s = cluster.heartbeat_interval_us / 1e6

    def ingest(self, stream: StreamDef) -> Ingest:
        """Raises ConfigError or SourceError if the source is not there or its options are wrong."""

        def make(stopped: threading.Event, skipped: Callable[[int], None]) -> Wrapper:
            context = SourceContext(
                stream=stream.name,
                schema=arrow_schema(stream.columns),
                timestamp=stream.timestamp,
                options=stream.source.options,
                base=Path(stream.base or "."),
                spark=lambda: self._spark,
                stopped=stopped,
                skipped=skipped,
            )
            return make_wrapper(stream.source.name, context)

        return Ingest(stream, self._outlet(stream.name, stream.columns), make, self._heartbeat_s)

    def task(self, spec: TaskSpec) -> Task:
        """Raises ConfigError or SinkError if its sink cannot be written to."""
        inlets = [LiveInlet(one.stream, limit=self._limit) for one in spec.inputs]
        outlet = self._outlet(spec.output, spec.columns) if spec.output else None
        return Task(spec, self._body(spec), inlets, outlet, self._name_job)

    def _body(self, spec: TaskSpec) -> Body:
        (source,) = spec.inputs
        if spec.sink is None:
            columns = arrow_schema(source.columns), arrow_schema(spec.columns)
            return SelectionBody(self._spark, source.alias, spec.operators, *columns)
        columns_in = arrow_schema(source.columns)
        extra = [pa.field(POSITION, pa.int64()), pa.field(EVENT_TIME, pa.int64())]
        context = SinkContext(
            query=spec.query,
            schema=pa.schema([*columns_in, *extra]),
            options=spec.sink.options,
            base=Path(spec.base or "."),
            spark=lambda: self._spark,
        )
        return SinkBody(make_sink(spec.sink.name, context), columns_in)

    def _outlet(self, stream: str, columns: tuple[Column, ...]) -> LiveOutlet:
        schema = wire_schema(arrow_schema(columns))
        # What waits is better off at the consumer: an outlet needs enough to keep its link busy.
        limit = max(1, self._limit // 4)
        return LiveOutlet(stream, schema, limit=limit, heartbeat_s=self._heartbeat_s)

    def _name_job(self, group: str, description: str) -> None:
        self._spark.sparkContext.setJobGroup(group, description)
