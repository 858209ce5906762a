"""Arrow columns as JSON and as CSV, column by column.

| type | JSON |
|---|---|
| NULL | `null` |
| integers, `_pos`, `_ts` (µs since the epoch) | number |
| FLOAT, DOUBLE | number that reads back as the same value; `"NaN"`, `"Infinity"`, `"-Infinity"` |
| DECIMAL | number up to 15 digits, which any reader keeps exactly; beyond, text |
| TIMESTAMP | `"2026-01-31T12:00:00.000000Z"`, without the Z if it has no zone |
| DATE | `"2026-01-31"` |
| BINARY | base64 |
| ARRAY, MAP, STRUCT | array, object, object |
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from json.encoder import encode_basestring
from math import isfinite, isnan
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from pyarrow.csv import WriteOptions, write_csv

from anabranch.errors import SinkError

_TO_ESCAPE = r'["\\\x00-\x1f]'
_EXACT_DIGITS = 15
_NOT_FINITE = {
    "nan": '"NaN"',
    "-nan": '"NaN"',
    "inf": '"Infinity"',
    "-inf": '"-Infinity"',
}


def json_column(column: pa.Array) -> pa.Array:
    """A column of JSON texts, never NULL."""
    return pc.fill_null(_encoder(column.type)(column), "null")


def json_objects(batch: pa.RecordBatch, end: str = "") -> pa.Array:
    """One object a row, its keys in the order of the columns, and `end` after each."""
    parts: list[Any] = []
    for index, name in enumerate(batch.schema.names):
        start = "{" if index == 0 else ", "
        parts += [f"{start}{json.dumps(name, ensure_ascii=False)}: ", json_column(batch[index])]
    return pc.binary_join_element_wise(*parts, "}" + end, "")


def iso_text(column: pa.Array) -> pa.Array:
    """Timestamps as ISO 8601, with a Z if they have a zone."""
    # Without zone the cast is ten times faster, and the value of a zoned one is UTC anyway.
    naive = pc.replace_substring(column.cast(pa.timestamp("us")).cast(pa.string()), " ", "T")
    return pc.binary_join_element_wise(naive, "Z", "") if column.type.tz else naive


def text_bytes(array: pa.StringArray) -> memoryview:
    """All texts of an array without NULLs one after the other, as UTF-8, without a copy."""
    _, offsets, data = array.buffers()
    first, last = (
        int(np.frombuffer(offsets, np.int32)[array.offset + index]) for index in (0, len(array))
    )
    return memoryview(data)[first:last]


def base64_text(column: pa.Array) -> pa.Array:
    return _each(column, lambda value: base64.b64encode(value).decode())


def nested_text(column: pa.Array) -> pa.Array:
    """Nested values as JSON; NULL stays NULL."""
    type = column.type
    return _each(column, lambda value: json.dumps(_plain(value, type), ensure_ascii=False))


def _encoder(type: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    if pt.is_floating(type):
        return _floats
    if pt.is_string(type) or pt.is_large_string(type):
        return _strings
    if pt.is_timestamp(type):
        return lambda column: _quoted(iso_text(column))
    if pt.is_binary(type) or pt.is_large_binary(type):
        return lambda column: _quoted(base64_text(column))
    if pt.is_nested(type):
        return nested_text
    if pt.is_integer(type) or pt.is_boolean(type) or _is_short(type):
        return lambda column: column.cast(pa.string())
    return lambda column: _quoted(column.cast(pa.string()))


def _is_short(type: pa.DataType) -> bool:
    return bool(pt.is_decimal(type) and type.precision <= _EXACT_DIGITS)


def _quoted(text: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', text, '"', "")


def _strings(text: pa.Array) -> pa.Array:
    text = text.cast(pa.string())
    if pc.any(pc.match_substring_regex(text, _TO_ESCAPE)).as_py():
        return _each(text, encode_basestring)
    return _quoted(text)


def _floats(column: pa.Array) -> pa.Array:
    text = column.cast(pa.string())
    # Else a reader would take 1.0 for an integer, and lose the sign of -0.0.
    whole = pc.match_substring_regex(text, r"^-?\d+$")
    text = pc.if_else(whole, pc.binary_join_element_wise(text, ".0", ""), text)
    if pc.all(pc.is_finite(column)).as_py() is not False:
        return text
    return _each(text, lambda value: _NOT_FINITE.get(value, value))


def _each(column: pa.Array, convert: Callable[[Any], str]) -> pa.Array:
    texts = [None if value is None else convert(value) for value in column.to_pylist()]
    return pa.array(texts, pa.string())


def _plain(value: Any, type: pa.DataType) -> Any:
    """The value in a form that json.dumps takes, by the same rules as whole columns."""
    if value is None:
        return None
    if pt.is_struct(type):
        return {part.name: _plain(value[part.name], part.type) for part in type}
    if pt.is_map(type):
        return {_key(key): _plain(item, type.item_type) for key, item in value}
    if pt.is_list(type) or pt.is_large_list(type):
        return [_plain(item, type.value_type) for item in value]
    return _plain_scalar(value, type)


def _plain_scalar(value: Any, type: pa.DataType) -> Any:
    if isinstance(value, float) and not isfinite(value):
        return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat() + ("Z" if type.tz else "")
    if isinstance(value, Decimal):
        return float(value) if _is_short(type) else str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if isinstance(value, date) else value


def _key(key: Any) -> str:
    return key if isinstance(key, str) else str(key)


def csv_text(table: pa.Table, *, header: bool = False) -> memoryview:
    """The CSV text of flat columns: text is quoted, NULL is an empty field without quotes."""
    buffer = pa.BufferOutputStream()
    options = WriteOptions(include_header=header, quoting_style="needed")
    try:
        write_csv(table, buffer, options)
    except pa.ArrowException as error:
        raise SinkError(f"cannot be written as CSV: {error}") from error
    return memoryview(buffer.getvalue())


def csv_rows(batch: pa.RecordBatch) -> pa.Array:
    """One text a row, as in a file but without the line break."""
    fields = [_field(writable(column)) for column in batch.columns]
    return pc.binary_join_element_wise(*fields, ",")


def _field(column: pa.Array) -> pa.Array:
    text = column.cast(pa.string())
    if pt.is_string(column.type):
        text = pc.binary_join_element_wise('"', pc.replace_substring(text, '"', '""'), '"', "")
    return pc.fill_null(text, "")


def writable(column: pa.Array) -> pa.Array:
    if pt.is_binary(column.type):
        return base64_text(column)
    return nested_text(column) if pt.is_nested(column.type) else column
