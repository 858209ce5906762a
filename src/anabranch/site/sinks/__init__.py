"""Outside places for results by name. A new one is a module here and a line in SINKS."""

from __future__ import annotations

from anabranch.site.registry import Registry
from anabranch.site.sinks.base import Resumable, Sink, SinkContext, written

__all__ = ["SINKS", "Resumable", "Sink", "SinkContext", "make_sink", "written"]

SINKS: Registry[Sink] = Registry(
    "sink",
    {
        "console": "anabranch.site.sinks.console:ConsoleSink",
        "csv": "anabranch.site.sinks.csv:CsvSink",
        "jsonl": "anabranch.site.sinks.jsonl:JsonlSink",
        "kafka": "anabranch.site.sinks.kafka:KafkaSink",
        "parquet": "anabranch.site.sinks.parquet:ParquetSink",
        "postgres": "anabranch.site.sinks.postgres:PostgresSink",
        "spark": "anabranch.site.sinks.spark:SparkSink",
    },
)


def make_sink(name: str, context: SinkContext) -> Sink:
    """The sink called `name`, its options checked, not yet open."""
    return SINKS.find(name)(context)
