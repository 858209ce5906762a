"""Short ways to make and read sources."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from anabranch.connectors import SourceContext, make_source
from anabranch.errors import AnabranchError

UTC_MICROS = pa.timestamp("us", "UTC")


def no_spark() -> Any:
    raise AssertionError("this source needs no Spark")


def context(
    base: Path,
    options: Mapping[str, Any],
    columns: Mapping[str, pa.DataType],
    timestamp: str | None = None,
    **more: Any,
) -> SourceContext:
    schema = pa.schema(list(columns.items()))
    return SourceContext("S", schema, timestamp, options, base, **{"spark": no_spark} | more)


class CheckedSource:
    """A source with what it reported."""

    def __init__(self, name: str, base: Path, options: Mapping[str, Any], *rest: Any, **more: Any):
        self.stopped = threading.Event()
        self.skipped: list[int] = []
        made = context(
            base, options, *rest, stopped=self.stopped, skipped=self.skipped.append, **more
        )
        self.connector = make_source(name, made)

    def table(self) -> pa.Table:
        tables = list(self.connector.read())
        return pa.concat_tables(tables)

    def rows(self) -> list[dict[str, Any]]:
        tables = list(self.connector.read())
        return [row for table in tables for row in table.to_pylist()]


def message(call: Any) -> str:
    """The line of the error that `call` raises."""
    try:
        call()
    except AnabranchError as error:
        return error.line()
    raise AssertionError("nothing was raised")
