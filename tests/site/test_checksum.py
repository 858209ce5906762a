"""The checksum of rows depends on them alone."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.site.sources.reading_again import checksum

TYPES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int64(), [1, None, -5, 7, 7]),
    (pa.bool_(), [True, None, False, True, True]),
    (pa.float64(), [0.5, None, float("inf"), 2.0, -1.0]),
    (pa.decimal128(10, 2), [Decimal("1.25"), None, Decimal(3), Decimal(0), Decimal(9)]),
    (pa.date32(), [date(2026, 1, 1), None, date(1970, 1, 1), date(2, 2, 2), date(3, 3, 3)]),
    (pa.timestamp("us", "UTC"), [1, None, 3, 4, 5]),
    (pa.string(), ["a", None, "", "ü", "abcdef"]),
    (pa.large_string(), ["a", None, "", "ü", "abcdef"]),
    (pa.binary(), [b"a", None, b"", b"\0", b"xyz"]),
    (pa.list_(pa.int32()), [[1, 2], None, [], [None, 3], [4]]),
    (pa.map_(pa.string(), pa.int64()), [{"a": 1}, None, {}, {"b": None}, {"c": 3, "d": 4}]),
    (
        pa.struct([("x", pa.int8()), ("y", pa.string())]),
        [{"x": 1, "y": "a"}, None, {"x": None, "y": "b"}, {"x": 2, "y": None}, {"x": 3, "y": ""}],
    ),
    (pa.null(), [None, None, None, None, None]),
]


@pytest.mark.parametrize(("kind", "some"), TYPES, ids=[str(kind) for kind, _ in TYPES])
@settings(deadline=None, max_examples=30)
@given(data=st.data())
def test_slices_and_chunks_do_not_count_and_values_do(
    kind: pa.DataType, some: list[Any], data: st.DataObject
) -> None:
    values = data.draw(st.lists(st.sampled_from(some), max_size=12))
    table = pa.table([pa.array(values, kind)], names=["v"])
    before, behind = data.draw(st.integers(0, 3)), data.draw(st.integers(0, 3))
    around = pa.array([*some[:before], *values, *some[:behind]], kind).slice(before, len(values))
    cut = data.draw(st.integers(0, len(values)))
    chunks = pa.chunked_array([around.slice(0, cut), around.slice(cut)], kind)
    assert checksum(pa.table([around], names=["v"])) == checksum(table)
    assert checksum(pa.table([chunks], names=["v"])) == checksum(table)
    others = data.draw(st.lists(st.sampled_from(some), max_size=12))
    other = pa.table([pa.array(others, kind)], names=["v"])
    assert (checksum(other) == checksum(table)) == other.equals(table)


@pytest.mark.parametrize("kind", [pa.bool_(), pa.int8()], ids=str)
def test_where_nulls_are_does_not_look_like_values(kind: pa.DataType) -> None:
    def of(*values: Any) -> int:
        return checksum(pa.table([pa.array(values, pa.int64()).cast(kind)], names=["v"]))

    assert of(None) != of(0)
    assert of(None, 1) != of(0, 1, 1)
