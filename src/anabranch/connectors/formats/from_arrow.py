"""Arrow columns from Arrow columns of another type, as in Parquet files."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from anabranch.connectors.formats.epoch import is_event_time, micros_of
from anabranch.connectors.formats.from_text import from_text
from anabranch.connectors.formats.instants import instants

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
        return _instants(values, type)
    if values.type == type:
        return values
    if _is_text(values.type) and not (pt.is_string(type) or pt.is_binary(type)):
        return from_text(values.to_pylist(), type)
    if pt.is_timestamp(values.type) and pt.is_timestamp(type):
        return _cast_time(values, type)
    return values.cast(type)


def _instants(values: pa.Array, type: pa.DataType | None) -> pa.Array:
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
