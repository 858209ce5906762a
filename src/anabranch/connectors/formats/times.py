"""Event times from whole numbers, and points in time from text.

The type of an event time is None for microseconds, and an Arrow duration of its unit otherwise.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

UNITS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROS = {"s": 1_000_000, "ms": 1_000, "us": 1}
_PER_MICRO = 1_000
"""Nanoseconds."""
_YEAR_US = 365 * 86_400_000_000
_NEAR_US = 10 * _YEAR_US
"""So far from now, event times are usual."""
_WHOLE = re.compile(r"[+-]?\d+")


def event_type(unit: str) -> pa.DataType | None:
    """The type for a unit: one of UNITS, or empty for microseconds."""
    return None if unit in ("", "us") else pa.duration(unit)


def is_event_time(type: pa.DataType | None) -> bool:
    return type is None or pt.is_duration(type)


def unit_of(type: pa.DataType | None) -> str:
    return "us" if type is None else str(type.unit)


def micros(value: int, type: pa.DataType | None) -> int:
    """The time in µs. Digits below the µs are cut off, downwards."""
    unit = unit_of(type)
    return value // _PER_MICRO if unit == "ns" else value * _MICROS[unit]


def micros_of(values: pa.Array, type: pa.DataType | None) -> pa.Array:
    """The times in µs, as `micros` gives one. Raises ValueError if a number is too large."""
    values, unit = values.cast(pa.int64()), unit_of(type)
    if unit != "ns":
        return values if unit == "us" else pc.multiply_checked(values, _MICROS[unit])
    cut = pc.divide(values, _PER_MICRO)  # towards zero
    down = pc.less(values, pc.multiply(cut, _PER_MICRO))
    return pc.subtract(cut, down.cast(pa.int64()))


def mistaken(value: Any, now_us: int) -> tuple[int, str, str] | None:
    """What a whole number that was hardly meant as µs probably means: the number, the time it would
    be as µs, and the unit in which it lies within ten years of `now_us`. None if it looks right.
    """
    value = value.as_py() if isinstance(value, pa.Scalar) else value
    if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or abs(value - now_us) <= _NEAR_US:
        return None
    for unit in ("ms", "s", "ns"):
        if abs(micros(value, event_type(unit)) - now_us) <= _NEAR_US:
            return value, shown(value), unit
    return None


def shown(us: int) -> str:
    """`2026-01-31T12:00:00Z`, as far as the calendar reaches."""
    try:
        when = _EPOCH + timedelta(microseconds=us)
    except OverflowError:
        return f"{us:,} µs since 1970"
    return when.isoformat(timespec="seconds").replace("+00:00", "Z")


_WHOLE_TEXT = r"^-?\d+$"
_ZONED = r"[T ]\d\d:?\d\d.*(?:Z|[+-]\d\d(?::?\d\d)?)$"


def instants(text: pa.Array, type: pa.DataType | None = None) -> pa.Array:
    """µs since the epoch from whole numbers, in the unit of the event time `type`, or from ISO 8601
    times; without a zone they are UTC. Digits below the µs are cut off.
    """
    text = pc.replace_substring_regex(text, r"^\+(\d)", r"\1")
    whole = pc.match_substring_regex(text, _WHOLE_TEXT)
    if pc.all(whole).as_py() is not False:
        return micros_of(text, type)
    times = pc.replace_substring_regex(pc.utf8_upper(text), r"(\.\d{6})\d+", r"\1")
    zoned = pc.match_substring_regex(times, _ZONED)
    unzoned = pc.invert(pc.or_(whole, zoned))
    return pc.coalesce(
        micros_of(_only(text, whole), type),
        _only(times, zoned).cast(pa.timestamp("us", "UTC")).cast(pa.int64()),
        _only(times, unzoned).cast(pa.timestamp("us")).cast(pa.int64()),
    )


def _only(text: pa.Array, chosen: pa.Array) -> pa.Array:
    return pc.if_else(chosen, text, pa.scalar(None, pa.string()))
