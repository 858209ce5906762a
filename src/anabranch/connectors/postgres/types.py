"""Maps columns of a query to columns of a PostgreSQL table, and rows to what COPY reads."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.types as pt

from anabranch.connectors.formats.csv_text import csv_text
from anabranch.connectors.formats.json_text import nested_text
from anabranch.connectors.formats.table_builder import sql_type
from anabranch.errors import ConfigError

_TYPES: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pt.is_boolean, "boolean"),
    (pt.is_int8, "smallint"),
    (pt.is_int16, "smallint"),
    (pt.is_int32, "integer"),
    (pt.is_int64, "bigint"),
    (pt.is_float32, "real"),
    (pt.is_float64, "double precision"),
    (pt.is_string, "text"),
    (pt.is_large_string, "text"),
    (pt.is_binary, "bytea"),
    (pt.is_large_binary, "bytea"),
    (pt.is_date, "date"),
    (pt.is_nested, "jsonb"),
)


def postgres_type(name: str, type: pa.DataType) -> str:
    """The type as PostgreSQL's format_type writes it."""
    if pt.is_decimal(type):
        return f"numeric({type.precision},{type.scale})"
    if pt.is_timestamp(type):
        return f"timestamp {'with' if type.tz else 'without'} time zone"
    for applies, found in _TYPES:
        if applies(type):
            return found
    raise ConfigError(
        f"postgres() has no type for the column {name} {sql_type(type)}",
        remedy=f"Convert it in the query, as in CAST({name} AS STRING).",
    )


def copy_text(table: pa.Table) -> memoryview:
    """The text for COPY … (FORMAT csv): NULL is an empty field, the empty text has quotes."""
    columns = [_writable(column.combine_chunks()) for column in table.columns]
    return csv_text(pa.table(columns, names=table.column_names))


def _writable(column: pa.Array) -> pa.Array:
    if pt.is_binary(column.type) or pt.is_large_binary(column.type):
        texts = [None if value is None else f"\\x{value.hex()}" for value in column.to_pylist()]
        return pa.array(texts, pa.string())
    return nested_text(column) if pt.is_nested(column.type) else column
