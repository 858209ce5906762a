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
from anabranch.errors import AnabranchError, ConfigError
from anabranch.plan.catalog import AnyDef, QueryDef
from anabranch.plan.places import Place

_TYPES = {
    "bigint": pa.int64(), "int": pa.int32(), "double": pa.float64(), "string": pa.string(),
    "boolean": pa.bool_(), "date": pa.date32(), "timestamp": pa.timestamp("us", "UTC"),
}  # fmt: skip
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

    def call(self, action: str, timeout_s: float = 0, **body: Any) -> Any:
        if action == "check":
            return check_files(body, self._folder)
        return [] if action == "plans" else 0


def check_files(body: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The action `check` of a site, for what needs nothing but files."""
    places: list[Place] = []
    problems: list[dict[str, Any]] = []
    for one in body["sources"]:
        source, schema = one["source"], _schema(one["columns"])
        registry: Registry[Any] = TABLES if one["kind"] == "table" else SOURCES
        kind = registry.find(source["name"])
        if source["name"] not in _OFFLINE:
            continue
        if one["kind"] == "table":
            kind(TableContext(one["name"], schema, source["options"], folder))
        else:
            kind(SourceContext(
                one["name"], schema, one["timestamp"], source["options"], folder, spark=_no_spark,
                stopped=threading.Event(),
            ))  # fmt: skip
        places += kind.places(source["options"], folder)
    for one in body["tasks"]:
        if sink := _sink(one["query"], one["sink"], one["columns"], folder):
            places += sink.places(one["sink"]["options"], folder)
            try:
                sink.check_own()
            except ConfigError as error:
                problems.append(error.to_dict())
    return {"places": [place.model_dump() for place in places], "problems": problems}


def _sink(query: str, sink: dict[str, Any], columns: Iterable[Any], folder: Path) -> Sink | None:
    if sink["name"] not in _OFFLINE:
        SINKS.find(sink["name"])
        return None
    own = [pa.field("_pos", pa.int64()), pa.field("_ts", pa.int64())]
    schema = pa.schema([*_schema(columns), *own])
    return make_sink(sink["name"], SinkContext(query, schema, sink["options"], folder, _no_spark))


def open_sinks(definitions: Iterable[AnyDef], folder: Path) -> None:
    """As if the queries were deployed."""
    for one in definitions:
        if isinstance(one, QueryDef) and one.sink and one.sink.name in _OFFLINE - {"console"}:
            with suppress(AnabranchError):
                columns = [column.model_dump() for column in one.columns]
                sink = _sink(one.name, one.sink.model_dump(), columns, folder)
                if sink:
                    sink.open()
                    sink.close()


def _schema(columns: Iterable[Any]) -> pa.Schema:
    try:
        return pa.schema([(one["name"], _TYPES[one["type"].lower()]) for one in columns])
    except KeyError as error:
        raise ConfigError(f"the type {error} is not known without Spark") from None


def _no_spark() -> Any:
    raise ConfigError("there is no Spark here")
