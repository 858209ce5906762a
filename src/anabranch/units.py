"""Durations, sizes and rates as people write them: `500ms`, `1.5s`, `10MB/s`, `30%`."""

from __future__ import annotations

import re

from anabranch.errors import ConfigError

_DURATIONS_US = {
    "us": 1,
    "µs": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
_WORDS = {
    "usec": "us",
    "micro": "us",
    "microsecond": "us",
    "msec": "ms",
    "milli": "ms",
    "millisecond": "ms",
    "sec": "s",
    "second": "s",
    "minute": "m",
    "hr": "h",
    "hour": "h",
    "day": "d",
}
_SIZES = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
}
_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-zµ%/]*)\s*")


def _split(text: str, example: str) -> tuple[float, str]:
    match = _QUANTITY.fullmatch(text)
    if not match:
        raise ConfigError(f"{text!r} is not a quantity", remedy=f"Write it like {example}.")
    return float(match[1]), match[2]


def duration_us(text: str) -> int:
    """The microseconds of a duration such as `250ms`; the unit is required."""
    value, unit = _split(text, "250ms")
    if unit not in _DURATIONS_US:
        meant = unit_meant(unit)
        remedy = (
            f"Write {value:g}{meant}."
            if meant
            else (f"Use one of {', '.join(_DURATIONS_US)}, as in 250ms.")
        )
        raise ConfigError(f"{text!r} has no known unit of time", remedy=remedy)
    return round(value * _DURATIONS_US[unit])


def unit_meant(word: str) -> str | None:
    """The unit of time that `word` is another name of, such as `m` for `minutes`."""
    low = word.lower()
    return _WORDS.get(low) or _WORDS.get(low.removesuffix("s"))


def byte_count(text: str) -> int:
    """The bytes of a size such as `16MB`; the unit is required."""
    value, unit = _split(str(text), "16MB")
    if unit.lower() not in _SIZES:
        raise ConfigError(f"{text!r} is not a size", remedy="Write it like 16MB or 64KiB.")
    return round(value * _SIZES[unit.lower()])


def show_bytes(size: int) -> str:
    """A size as people write it: `16MB`, `1.5kB`."""
    for unit, whole in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= whole:
            return f"{size / whole:.4g}{unit}"
    return f"{size} bytes"


def bytes_per_second(text: str) -> float:
    """The bytes a second of a bandwidth such as `10MB/s`."""
    value, unit = _split(text, "10MB/s")
    size = unit.lower().removesuffix("/s")
    if not unit.lower().endswith("/s") or size not in _SIZES:
        raise ConfigError(f"{text!r} is not a bandwidth", remedy="Write it like 10MB/s or 64KiB/s.")
    return value * _SIZES[size]


def show_duration(us: float) -> str:
    """The shortest readable form: `1.5s`, `250ms`, `40µs`."""
    for unit, size in (("h", 3.6e9), ("m", 6e7), ("s", 1e6), ("ms", 1e3)):
        if us >= size:
            return f"{us / size:.3g}{unit}"
    return f"{us:.3g}µs"


def show_ms(value: float | None) -> str:
    """An age or a latency in a table: `218 ms`, `218.9 s`, `–` where it is not known."""
    if value is None:
        return "–"
    return f"{value:,.0f} ms" if value < 10_000 else f"{value / 1000:,.1f} s"


def exact_duration(us: int) -> str:
    """The duration in the largest unit of which it is a whole number: `90m`, `36500d`, `1µs`."""
    for unit in ("d", "h", "m", "s", "ms"):
        if us % _DURATIONS_US[unit] == 0:
            return f"{us // _DURATIONS_US[unit]}{unit}"
    return f"{us}µs"
