"""Points in time from text."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.connectors.formats.epoch import micros_of

_WHOLE = r"^-?\d+$"
_ZONED = r"[T ]\d\d:?\d\d.*(?:Z|[+-]\d\d(?::?\d\d)?)$"


def instants(text: pa.Array, type: pa.DataType | None = None) -> pa.Array:
    """µs since the epoch from whole numbers, in the unit of the event time `type`, or from ISO 8601
    times; without a zone they are UTC. Digits below the µs are cut off.
    """
    text = pc.replace_substring_regex(text, r"^\+(\d)", r"\1")
    whole = pc.match_substring_regex(text, _WHOLE)
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
