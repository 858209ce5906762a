"""Arrow columns from text, as in CSV files."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from anabranch.connectors.formats.epoch import is_event_time
from anabranch.connectors.formats.from_values import from_values
from anabranch.connectors.formats.instants import instants


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
