"""Arrow columns from Python values, from text, and from Arrow columns of another type.

Stricter than `pyarrow.array`, which cuts 1.5 down to the INT 1 and takes true for a DOUBLE.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from anabranch.connectors.formats.times import instants, is_event_time, micros, micros_of

_NO_TIME = time(0)
_TRUTH = {True: True, False: False, "true": True, "false": False, "1": True, "0": False}
_NOT_FINITE = {"NaN", "Infinity", "-Infinity"}


def from_values(
    values: Sequence[Any], type: pa.DataType | None, *, base64_text: bool = False
) -> pa.Array:
    """`values` as `type`, or as µs since the epoch if that is an event time's.

    Raises ValueError, TypeError or one of their kin if any value does not fit. A text given for
    BINARY is base64 if `base64_text`, else taken as UTF-8.
    """
    if is_event_time(type):
        return _instants(values, type)
    if pt.is_timestamp(type):
        return _instants(values, None).cast(pa.timestamp("us", "UTC")).cast(type)
    if pt.is_nested(type):
        return _nested(values, type, base64_text)
    if pt.is_binary(type) and base64_text:
        return pa.array(_each(_from_base64, values), type)
    kind, convert = _rule(type)
    if not {*map(_type, values)} <= {kind, _type(None)}:
        values = _each(convert, values)
    return pa.array(values, type)


def _instants(values: Sequence[Any], type: pa.DataType | None) -> pa.Array:
    if {*map(_type, values)} <= {str, _type(None)}:
        return instants(pc.utf8_trim_whitespace(pa.array(values, pa.string())), type)
    return pa.array(_each(partial(_micros, type=type), values), pa.int64())


def _type(value: Any) -> Any:
    return value.__class__


def _each(convert: Callable[[Any], Any], values: Sequence[Any]) -> list[Any]:
    return [None if value is None else convert(_plain(value)) for value in values]


def _plain(value: Any) -> Any:
    """A Python value for a NumPy scalar."""
    if not isinstance(value, np.generic):
        return value
    if isinstance(value, np.datetime64):
        # In ns, item() would be a bare number.
        value = value.astype("datetime64[us]")
    return value.item()


def _rule(type: pa.DataType) -> tuple[Any, Callable[[Any], Any]]:
    """The class that pyarrow converts correctly by itself, and how to convert values of any
    other.
    """
    for applies, kind, convert in _RULES:
        if applies(type):
            return kind, convert
    return object, _refuse


def _refuse(value: Any) -> Any:
    raise TypeError(f"{value!r} does not fit")


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        _refuse(value)
    return int(value) if value == int(value) else _refuse(value)


def _real(value: Any) -> float:
    numeric = isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)
    return float(value) if numeric or value in _NOT_FINITE else _refuse(value)


def _boolean(value: Any) -> bool:
    key = value.strip().lower() if isinstance(value, str) else value
    return _TRUTH[key] if isinstance(key, (str, bool, int)) and key in _TRUTH else _refuse(value)


def _decimal(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float, str, Decimal)):
        _refuse(value)
    return Decimal(repr(value)) if isinstance(value, float) else Decimal(value)


def _text(value: Any) -> str:
    return str(value) if isinstance(value, str) else _refuse(value)


def _binary(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    return bytes(value) if isinstance(value, (bytes, bytearray, memoryview)) else _refuse(value)


def _from_base64(value: Any) -> bytes:
    return base64.b64decode(value, validate=True) if isinstance(value, str) else _refuse(value)


def _date(value: Any) -> date:
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, str):
        return date.fromisoformat(value.strip())
    return value if isinstance(value, date) else _refuse(value)


def _micros(value: Any, type: pa.DataType | None) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return micros(value, type)
    if isinstance(value, str):
        text = value.strip()
        whole = text.lstrip("+-").isdigit()
        return _micros(int(text) if whole else datetime.fromisoformat(text), type)
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime.combine(value, _NO_TIME)
    if not isinstance(value, datetime):
        _refuse(value)
    # Whole numbers throughout: datetime.timestamp() is a float and loses the last µs.
    since = (value if value.tzinfo else value.replace(tzinfo=UTC)) - _EPOCH
    return int((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RULES: tuple[tuple[Callable[[pa.DataType], bool], Any, Callable[[Any], Any]], ...] = (
    (pt.is_integer, int, _integer),
    (pt.is_floating, float, _real),
    (pt.is_boolean, bool, _boolean),
    (pt.is_decimal, Decimal, _decimal),
    (pt.is_string, str, _text),
    (pt.is_binary, bytes, _binary),
    (pt.is_date, date, _date),
)


def _nested(values: Sequence[Any], type: pa.DataType, base64_text: bool) -> pa.Array:
    """The nested column, child by child: each child array is built once, so that the strict rules
    hold inside.
    """
    present = [value for value in values if value is not None]
    if pt.is_struct(type):
        return _struct(values, type, base64_text)
    if pt.is_map(type):
        pairs = [pair for value in present for pair in _mapping(value).items()]
        keys = from_values([key for key, _ in pairs], type.key_type, base64_text=base64_text)
        items = from_values([item for _, item in pairs], type.item_type, base64_text=base64_text)
        return pa.MapArray.from_arrays(_offsets(values), keys, items).cast(type)
    if not pt.is_list(type):
        _refuse(type)
    flat = [item for value in present for item in _sequence(value)]
    items = from_values(flat, type.value_type, base64_text=base64_text)
    return pa.ListArray.from_arrays(_offsets(values), items).cast(type)


def _struct(values: Sequence[Any], type: pa.DataType, base64_text: bool) -> pa.Array:
    rows = [{} if value is None else _mapping(value) for value in values]
    children = [
        from_values([row.get(part.name) for row in rows], part.type, base64_text=base64_text)
        for part in type
    ]
    absent = pa.array([value is None for value in values], pa.bool_())
    return pa.StructArray.from_arrays(children, fields=list(type), mask=absent)


def _mapping(value: Any) -> Mapping[Any, Any]:
    return value if isinstance(value, Mapping) else _refuse(value)


def _sequence(value: Any) -> Sequence[Any]:
    if isinstance(value, np.ndarray):
        return list(value.tolist())
    return value if isinstance(value, (list, tuple)) else _refuse(value)


def _offsets(values: Sequence[Any]) -> pa.Array:
    """The place where each list starts and the last one ends; a NULL offset marks a NULL list."""
    starts = [0, *accumulate(0 if value is None else len(value) for value in values)]
    marks = [None if value is None else start for value, start in zip(values, starts, strict=False)]
    return pa.array([*marks, starts[-1]], pa.int32())


def from_text(values: Sequence[str], type: pa.DataType | None) -> pa.Array:
    """`values` as `type`, or as µs since the epoch if that is an event time's; an empty text is
    NULL.

    Raises ValueError or one of its kin if any value does not parse. Blanks around a value count
    for STRING and BINARY only. A nested type is read as JSON.
    """
    text = pa.array(values, pa.string())
    if type is not None and (pt.is_string(type) or pt.is_binary(type)):
        return _empty_as_null(text).cast(type)
    text = _empty_as_null(pc.utf8_trim_whitespace(text))
    if is_event_time(type):
        return instants(text, type)
    if pt.is_timestamp(type):
        return instants(text).cast(pa.timestamp("us", "UTC")).cast(type)
    if pt.is_nested(type):
        parsed = [None if value is None else json.loads(value) for value in text.to_pylist()]
        return from_values(parsed, type)
    if pt.is_integer(type):
        text = pc.replace_substring_regex(text, r"^\+", "")
    return text.cast(type)


def _empty_as_null(text: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)


_MICROS = pa.timestamp("us", "UTC")


def from_arrow(values: pa.Array, type: pa.DataType | None) -> pa.Array:
    """`values` as `type`, or as µs since the epoch if that is an event time's.

    Raises ValueError or one of its kin where a value would change; only digits below the µs may
    get lost. Text is parsed as in a CSV file, except that an empty STRING stays one.
    """
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if pt.is_dictionary(values.type):
        values = values.dictionary_decode()
    if is_event_time(type):
        return _instants_from_arrow(values, type)
    if values.type == type:
        return values
    if _is_text(values.type) and not (pt.is_string(type) or pt.is_binary(type)):
        return from_text(values.to_pylist(), type)
    if pt.is_timestamp(values.type) and pt.is_timestamp(type):
        return _cast_time(values, type)
    return values.cast(type)


def _instants_from_arrow(values: pa.Array, type: pa.DataType | None) -> pa.Array:
    if _is_text(values.type):
        return instants(pc.utf8_trim_whitespace(values.cast(pa.string())), type)
    if pt.is_timestamp(values.type) or pt.is_date(values.type):
        return _cast_time(values, _MICROS).cast(pa.int64())
    if not pt.is_integer(values.type):
        raise TypeError(f"{values.type} is no time")
    return micros_of(values, type)


def _cast_time(values: pa.Array, type: pa.DataType) -> pa.Array:
    return pc.cast(values, options=pc.CastOptions(target_type=type, allow_time_truncate=True))


def _is_text(type: pa.DataType) -> bool:
    return bool(pt.is_string(type) or pt.is_large_string(type) or pt.is_string_view(type))
