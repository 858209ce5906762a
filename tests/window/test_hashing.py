"""Hashes of key columns: equal where Spark's `=` is, also in slices."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.window.arrays import combined, hashable, hashed, valid

COLUMNS = [
    (pa.bool_(), [True, False]),
    (pa.int8(), [0, 1, -1]),
    (pa.int64(), [0, 1, -1, 2**62]),
    (pa.float32(), [0.0, 1.5, -1.5, float("inf")]),
    (pa.float64(), [0.0, 1.5, -1.5, float("inf")]),
    (pa.string(), ["", "a", "b", "ab", "ba", "a\0", "\0", "ä" * 40]),
    (pa.large_string(), ["", "a", "b", "ab"]),
    (pa.binary(), [b"", b"\0", b"\0\0", b"\1"]),
    (pa.decimal128(38, 2), [Decimal("0.00"), Decimal("1.25"), Decimal(10) ** 30]),
    (pa.date32(), [date(2024, 1, 1), date(2024, 1, 2)]),
    (pa.timestamp("us", "UTC"), [datetime(2024, 1, 1), datetime(2024, 1, 2)]),
    (pa.timestamp("us"), [datetime(2024, 1, 1), datetime(2024, 1, 2)]),
    (pa.duration("us"), [0, 1]),
]


@pytest.mark.parametrize(("type_", "values"), COLUMNS, ids=lambda x: str(x)[:20])
def test_values_keep_their_hashes_anywhere(type_: pa.DataType, values: list[Any]) -> None:
    assert hashable(type_)
    hashes = hashed(pa.array(values, type_))
    assert len(set(hashes)) == len(values)
    again = pa.array([None, values[0], *values, None], type_).slice(2, len(values))
    assert (hashed(again) == hashes).all()
    with_nulls = pa.array([None, *values, None], type_)
    assert (hashed(with_nulls)[1:-1] == hashes).all()
    assert list(valid(with_nulls)) == [False, *[True] * len(values), False]
    assert len(hashed(pa.array([], type_))) == 0
    assert len(hashed(pa.array([None, None], type_))) == 2


@pytest.mark.parametrize("type_", [pa.float32(), pa.float64()])
def test_zeros_and_nans_are_one(type_: pa.DataType) -> None:
    other_nan = np.array([0xFFF8000000000001], np.uint64).view(np.float64)[0]
    zero, minus, nan, other = hashed(pa.array([0.0, -0.0, float("nan"), other_nan], type_))
    assert zero == minus
    assert nan == other != zero


def test_nested_values_have_none() -> None:
    assert not hashable(pa.list_(pa.int64()))
    assert not hashable(pa.struct([("a", pa.int64())]))
    assert not hashable(pa.map_(pa.string(), pa.int64()))


def test_several_columns_count_in_their_order() -> None:
    a, b = hashed(pa.array([1, 2])), hashed(pa.array([2, 1]))
    assert combined([a, b])[0] != combined([b, a])[0]
    assert combined([a, b])[0] == combined([b, a])[1]


@given(st.lists(st.text(max_size=6), max_size=20))
def test_different_texts_rarely_share_one(texts: list[str]) -> None:
    hashes = hashed(pa.array(texts, pa.string()))
    assert len(set(hashes)) == len(set(texts))
