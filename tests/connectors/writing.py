"""Short ways to make sinks and tables for them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from anabranch.connectors import Sink, SinkContext, make_sink
from tests.connectors.reading import no_spark

COLUMNS = {"a": pa.int64(), "s": pa.string()}


def schema_of(columns: Mapping[str, pa.DataType]) -> pa.Schema:
    return pa.schema([*columns.items(), ("_pos", pa.int64()), ("_ts", pa.int64())])


def table_of(columns: Mapping[str, pa.DataType], rows: list[tuple], first: int = 1) -> pa.Table:
    """Rows with positions from `first` on and 1000 µs between their event times."""
    arrays = [pa.array([row[i] for row in rows], type) for i, type in enumerate(columns.values())]
    positions = range(first, first + len(rows))
    own = [pa.array(positions, pa.int64()), pa.array([1000 * p for p in positions], pa.int64())]
    return pa.Table.from_arrays([*arrays, *own], schema=schema_of(columns))


def numbered(first: int, count: int) -> pa.Table:
    return table_of(COLUMNS, [(i, f"r{i}") for i in range(first, first + count)], first)


def sink(name: str, base: Path, columns: Mapping[str, Any] = COLUMNS, **options: Any) -> Sink:
    spark, query = options.pop("spark", no_spark), options.pop("query", "q")
    resume = options.pop("resume", False)
    context = SinkContext(query, schema_of(columns), options, base, spark, resume=resume)
    return make_sink(name, context)
