"""Rows have one code, and one hash, exactly if they are the same row."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.window.arrays import row_hashes
from anabranch.window.codes import codes_of

floats = st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf])
small = st.none() | st.integers(0, 2)
TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int": (pa.int32(), small),
    "float": (pa.float64(), st.none() | floats),
    "text": (pa.string(), st.none() | st.sampled_from(["", "a", "ab"])),
    "bool": (pa.bool_(), st.none() | st.booleans()),
    "list": (pa.list_(pa.float64()), st.none() | st.lists(st.none() | floats, max_size=2)),
    "lists": (
        pa.list_(pa.list_(pa.int32())),
        st.none() | st.lists(st.none() | st.lists(small, max_size=2), max_size=2),
    ),
    "struct": (
        pa.struct([("a", pa.int32()), ("b", pa.struct([("c", pa.float64())]))]),
        st.none()
        | st.fixed_dictionaries(
            {"a": small, "b": st.none() | st.fixed_dictionaries({"c": st.none() | floats})}
        ),
    ),
    "map": (
        pa.map_(pa.string(), pa.int32()),
        st.none() | st.dictionaries(st.sampled_from("ab"), small).map(lambda d: list(d.items())),
    ),
    "null": (pa.null(), st.none()),
}


def plain(value: Any, grouped: bool) -> Hashable:
    """The same for the same value, in Python's own terms."""
    if isinstance(value, float):
        return repr(value + 0.0 if grouped else value)
    if isinstance(value, dict):
        return tuple(plain(one, grouped) for one in value.values())
    if isinstance(value, list | tuple):
        return tuple(plain(one, grouped) for one in value)
    return value  # type: ignore[no-any-return]


@pytest.mark.parametrize("grouped", [True, False])
@pytest.mark.parametrize("type_", TYPES)
@given(data=st.data())
def test_two_rows_are_the_same_exactly_if_their_codes_are(
    type_: str, grouped: bool, data: st.DataObject
) -> None:
    kind, values = TYPES[type_]
    pairs = data.draw(st.lists(st.tuples(values, small), max_size=12))
    table = pa.table({"v": pa.array([v for v, _ in pairs], kind), "n": [n for _, n in pairs]})
    table = table.slice(data.draw(st.integers(0, 2)))
    rows = [(plain(row["v"], grouped), row["n"]) for row in table.to_pylist()]
    codes = codes_of(table.columns, len(table), grouped=grouped).tolist()
    assert len(set(codes)) == len(set(rows)) == len(set(zip(codes, rows, strict=True)))
    if grouped:
        hashes = row_hashes(table.columns, len(table)).tolist()
        assert len(set(hashes)) == len(set(rows)) == len(set(zip(hashes, rows, strict=True)))


def test_hashes_are_the_same_in_another_table() -> None:
    one = pa.chunked_array([pa.array([[1, None], None, [2]])])
    other = pa.chunked_array([pa.array([[2]]), pa.array([[7], [1, None], None])])
    first, second = row_hashes([one], 3), row_hashes([other], 4)
    assert first.tolist() == second[[2, 3, 0]].tolist()
