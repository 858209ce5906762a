"""Numbers for the rows of one table: two rows have the same exactly if they are the same row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.window.arrays import I64

_NULL = "NULL"


def codes_of(columns: Sequence[pa.ChunkedArray], rows: int, *, grouped: bool = True) -> I64:
    """A number per row. NULL is the same as NULL, and NaN as NaN. `grouped`: as Spark's GROUP BY
    sees them, for which -0.0 is 0.0; else those whose bits differ are two."""
    codes = np.zeros(rows, np.int64)
    for column in columns:
        for own, size in _parts(_whole(column), grouped):
            # Dense again after every column, so that many columns cannot overflow.
            codes = first_of_each(codes * size + own)[0] if codes.any() else own
    return codes


def first_of_each(codes: I64) -> tuple[I64, I64]:
    """For each row the number of its code, and for each number its first row."""
    encoded = pa.array(codes).dictionary_encode()
    numbers = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    first = np.full(len(encoded.dictionary), len(codes), np.int64)
    first[numbers[::-1]] = np.arange(len(codes))[::-1]
    return numbers, first


def _whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _parts(column: pa.Array, grouped: bool) -> Iterator[tuple[I64, int]]:
    """Codes, and how many there are, that together tell the values of the column apart."""
    t = pa.types
    if t.is_struct(column.type):
        if column.null_count:
            yield column.is_valid().to_numpy(zero_copy_only=False).astype(np.int64), 2
        for field in column.flatten():  # which is NULL where the struct is
            yield from _parts(field, grouped)
    elif t.is_map(column.type) or t.is_list(column.type) or t.is_large_list(column.type):
        yield _of_lists(column, grouped)
    elif not t.is_null(column.type):
        yield _encoded(_comparable(column, grouped))


def _encoded(column: pa.Array) -> tuple[I64, int]:
    encoded = column.dictionary_encode(null_encoding="encode")
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, max(1, len(encoded.dictionary))


def _comparable(column: pa.Array, grouped: bool) -> pa.Array:
    """The column in a type whose values are equal exactly where Arrow says so."""
    t, type_ = pa.types, column.type
    if t.is_floating(type_):
        column = column.cast(pa.float64())
        if grouped:
            return pc.add(column, 0.0)  # -0.0 becomes 0.0
        values = column.fill_null(0.0).to_numpy(zero_copy_only=False).copy()
        values[np.isnan(values)] = np.nan  # one of the many
        return pa.array(values.view(np.int64), mask=_nulls(column))
    return column


def _nulls(column: pa.Array) -> np.ndarray:
    nulls: np.ndarray = column.is_null().to_numpy(zero_copy_only=False)
    return nulls


def _of_lists(column: pa.Array, grouped: bool) -> tuple[I64, int]:
    """Two lists are the same if their items have the same codes, one by one."""
    offsets = column.offsets.to_numpy()
    items = column.values if not pa.types.is_map(column.type) else _entries(column)
    inner = items.slice(offsets[0], offsets[-1] - offsets[0])
    codes = codes_of([inner], len(inner), grouped=grouped)
    known: dict[bytes | str, int] = {}
    nulls, base = _nulls(column), offsets[0]
    own = [
        known.setdefault(
            _NULL if missing else codes[low - base : high - base].tobytes(), len(known)
        )
        for low, high, missing in zip(offsets[:-1], offsets[1:], nulls, strict=True)
    ]
    return np.array(own, np.int64), max(1, len(known))


def _entries(column: pa.MapArray) -> pa.Array:
    return pa.StructArray.from_arrays([column.keys, column.items], ["key", "value"])
