"""What comes in and goes out, a folder or module for each technology.

A new source, sink or table is a module there and a line in WRAPPERS, SINKS or TABLES.
"""

from __future__ import annotations

from anabranch.connectors.registry import Registry
from anabranch.connectors.sink import Resumable, Sink, SinkContext, written
from anabranch.connectors.table import TableContext, TableReader
from anabranch.connectors.wrapper import EVENT_TIME, Cursor, Replayable, SourceContext, Wrapper

__all__ = [
    "EVENT_TIME",
    "SINKS",
    "TABLES",
    "WRAPPERS",
    "Cursor",
    "Replayable",
    "Resumable",
    "Sink",
    "SinkContext",
    "SourceContext",
    "TableContext",
    "TableReader",
    "Wrapper",
    "make_sink",
    "make_table",
    "make_wrapper",
    "written",
]

WRAPPERS: Registry[Wrapper] = Registry(
    "source",
    {
        "file": "anabranch.connectors.files.wrapper:FileWrapper",
        "kafka": "anabranch.connectors.kafka.wrapper:KafkaWrapper",
        "python": "anabranch.connectors.python.wrapper:PythonWrapper",
        "rate": "anabranch.connectors.rate:RateWrapper",
        "spark": "anabranch.connectors.spark.wrapper:SparkWrapper",
    },
)

SINKS: Registry[Sink] = Registry(
    "sink",
    {
        "console": "anabranch.connectors.console:ConsoleSink",
        "csv": "anabranch.connectors.files.csv_sink:CsvSink",
        "jsonl": "anabranch.connectors.files.jsonl_sink:JsonlSink",
        "kafka": "anabranch.connectors.kafka.sink:KafkaSink",
        "parquet": "anabranch.connectors.files.parquet_sink:ParquetSink",
        "postgres": "anabranch.connectors.postgres.sink:PostgresSink",
        "spark": "anabranch.connectors.spark.sink:SparkSink",
    },
)

TABLES: Registry[TableReader] = Registry(
    "table source",
    {
        "file": "anabranch.connectors.files.table:FileTable",
        "postgres": "anabranch.connectors.postgres.table:PostgresTable",
    },
)


def make_wrapper(name: str, context: SourceContext) -> Wrapper:
    """The wrapper called `name`, its options checked, not yet reading."""
    return WRAPPERS.find(name)(context)


def make_sink(name: str, context: SinkContext) -> Sink:
    """The sink called `name`, its options checked, not yet open."""
    return SINKS.find(name)(context)


def make_table(name: str, context: TableContext) -> TableReader:
    """The reader called `name`, its options checked, nothing read yet."""
    return TABLES.find(name)(context)
