"""The connectors to the world outside: a folder or module for each technology.

Those below are our own: a new one is a module here and a line there. Packages that are installed
add others by entry points: see `docs/extending.md`.
"""

from __future__ import annotations

from anabranch.connectors.options import (
    BOOLEAN,
    COUNT,
    DURATION,
    NUMBER,
    TEXT,
    Connector,
    Option,
    OptionKind,
    take,
)
from anabranch.connectors.registry import Registry
from anabranch.connectors.sink import Beginning, Sink, SinkContext
from anabranch.connectors.source import EVENT_TIME, Cursor, Source, SourceContext
from anabranch.connectors.table import TableContext, TableReader

__all__ = [
    "BOOLEAN",
    "COUNT",
    "DURATION",
    "EVENT_TIME",
    "NUMBER",
    "SINKS",
    "SOURCES",
    "TABLES",
    "TEXT",
    "Beginning",
    "Connector",
    "Cursor",
    "Option",
    "OptionKind",
    "Registry",
    "Sink",
    "SinkContext",
    "Source",
    "SourceContext",
    "TableContext",
    "TableReader",
    "make_sink",
    "make_source",
    "make_table",
    "take",
]

SOURCES: Registry[Source] = Registry(
    "source",
    Source,
    "anabranch.sources",
    {
        "file": "anabranch.connectors.files.source:FileSource",
        "kafka": "anabranch.connectors.kafka.source:KafkaSource",
        "python": "anabranch.connectors.python.source:PythonSource",
        "rate": "anabranch.connectors.rate:RateSource",
        "spark": "anabranch.connectors.spark.source:SparkSource",
    },
)

SINKS: Registry[Sink] = Registry(
    "sink",
    Sink,
    "anabranch.sinks",
    {
        "console": "anabranch.connectors.console:ConsoleSink",
        "csv": "anabranch.connectors.files.line_sink:CsvSink",
        "jsonl": "anabranch.connectors.files.line_sink:JsonlSink",
        "kafka": "anabranch.connectors.kafka.sink:KafkaSink",
        "parquet": "anabranch.connectors.files.parquet_sink:ParquetSink",
        "postgres": "anabranch.connectors.postgres.sink:PostgresSink",
        "spark": "anabranch.connectors.spark.sink:SparkSink",
    },
)

TABLES: Registry[TableReader] = Registry(
    "table source",
    TableReader,
    "anabranch.tables",
    {
        "file": "anabranch.connectors.files.source:FileTable",
        "postgres": "anabranch.connectors.postgres.table:PostgresTable",
    },
)


def make_source(name: str, context: SourceContext) -> Source:
    """The source called `name`, with its options checked; it does not read yet."""
    return SOURCES.find(name)(context)


def make_sink(name: str, context: SinkContext) -> Sink:
    """The sink called `name`, with its options checked; it is not open yet."""
    return SINKS.find(name)(context)


def make_table(name: str, context: TableContext) -> TableReader:
    """The reader called `name`, with its options checked; nothing is read yet."""
    return TABLES.find(name)(context)
