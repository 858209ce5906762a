"""A site that knows files and no Spark: for scripts that are checked and not run."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from anabranch.connectors import (
    SINKS,
    SOURCES,
    TABLES,
    Sink,
    SinkContext,
    SourceContext,
    make_sink,
)
from anabranch.connectors.registry import Registry
from anabranch.connectors.table import TableContext
from anabranch.errors import AnabranchError, ConfigError, ErrorReport
from anabranch.link.message import Message
from anabranch.link.messages import Check, Checked, Plans
from anabranch.plan.catalog import AnyDef, QueryDef, TableDef
from anabranch.plan.operators import Call
from anabranch.plan.places import Place
from anabranch.plan.spec import Column

_TYPES = {
    "bigint": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
    "string": pa.string(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
}
_OFFLINE = {"file", "csv", "jsonl", "parquet", "console"}


class FuzzSites:
    """Of two sites in one folder."""

    expected = frozenset[str]()

    def __init__(self, folder: Path) -> None:
        self._peer = _Peer(folder)

    def names(self) -> list[str]:
        return ["room1", "room2"]

    alive = names

    def heard_of(self, name: str) -> bool:
        return name in self.names()

    def absence(self, site: str) -> tuple[str, str]:
        return f"unknown site '{site}'", "Known sites are room1 and room2."

    def peer(self, name: str) -> _Peer:
        return self._peer

    def any(self) -> _Peer:
        return self._peer


class _Peer:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def send(self, message: Message[Any], timeout_s: float = 0) -> Any:
        if isinstance(message, Check):
            return check_files(message, self._folder)
        return () if isinstance(message, Plans) else 0


def check_files(asked: Check, folder: Path) -> Checked:
    """As a site answers it, for what needs nothing but files."""
    places: list[Place] = []
    problems: list[ErrorReport] = []
    for one in asked.sources:
        if one.source is None:
            continue
        schema, options = _schema(one.columns), one.source.options
        registry: Registry[Any] = TABLES if isinstance(one, TableDef) else SOURCES
        kind = registry.find(one.source.name)
        if one.source.name not in _OFFLINE:
            continue
        if isinstance(one, TableDef):
            kind(TableContext(one.name, schema, options, folder))
        else:
            kind(
                SourceContext(
                    one.name,
                    schema,
                    one.timestamp,
                    options,
                    folder,
                    spark=_no_spark,
                    stopped=threading.Event(),
                )
            )
        places += kind.places(options, folder)
    for task in asked.tasks:
        if task.sink and (sink := _sink(task.query, task.sink, task.columns, folder)):
            places += sink.places(task.sink.options, folder)
            try:
                sink.check_own()
            except ConfigError as error:
                problems.append(error.report())
    return Checked(tuple(places), tuple(problems))


def _sink(query: str, sink: Call, columns: Iterable[Column], folder: Path) -> Sink | None:
    if sink.name not in _OFFLINE:
        SINKS.find(sink.name)
        return None
    own = [pa.field("_pos", pa.int64()), pa.field("_ts", pa.int64())]
    schema = pa.schema([*_schema(columns), *own])
    return make_sink(sink.name, SinkContext(query, schema, sink.options, folder, _no_spark))


def open_sinks(definitions: Iterable[AnyDef], folder: Path) -> None:
    """As if the queries were deployed."""
    for one in definitions:
        if isinstance(one, QueryDef) and one.sink and one.sink.name in _OFFLINE - {"console"}:
            with suppress(AnabranchError):
                if sink := _sink(one.name, one.sink, one.columns, folder):
                    sink.open()
                    sink.close()


def _schema(columns: Iterable[Column]) -> pa.Schema:
    try:
        return pa.schema([(one.name, _TYPES[one.type.lower()]) for one in columns])
    except KeyError as error:
        raise ConfigError(f"the type {error} is not known without Spark") from None


def _no_spark() -> Any:
    raise ConfigError("there is no Spark here")
