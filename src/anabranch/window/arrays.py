"""Columns that grow at their end, and hashes of their values: equal values, as Spark's `=` sees
them, have equal hashes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

MERGED_AT = 4
"""A piece is merged with the one before it unless that is more than so many times larger."""
_LEAST = 64
_MERGED_BYTES = 256_000_000
"""Chunks are not merged beyond this: string arrays end at 2 GB."""


class Growing:
    """Named numpy arrays of one length with room to spare: appending costs as much as is
    appended.
    """

    def __init__(self, dtypes: Mapping[str, Any]) -> None:
        self._room = {name: np.empty(_LEAST, dtype) for name, dtype in dtypes.items()}
        self.size = 0

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        """A view, valid until the next change."""
        return self._room[name][: self.size]

    @property
    def nbytes(self) -> int:
        return sum(room.nbytes for room in self._room.values())

    def append(self, values: Mapping[str, npt.NDArray[Any] | int | bool], count: int) -> None:
        size = self.size + count
        for name, old in self._room.items():
            if len(old) < size:
                self._room[name] = np.empty(max(size, 2 * len(old)), old.dtype)
                self._room[name][: self.size] = old[: self.size]
            self._room[name][self.size : size] = values[name]
        self.size = size

    def keep(self, rows: Mask) -> None:
        for name in self._room:
            kept = self[name][rows]
            room = np.empty(max(_LEAST, 2 * len(kept)), kept.dtype)
            room[: len(kept)] = kept
            self._room[name] = room
        self.size = int(np.count_nonzero(rows))


class Carried:
    """Arrow columns in chunks, merged geometrically so that there are few.

    (Arrow's own `take` from a chunked column of strings copies all of it each time.)
    """

    def __init__(self, types: Sequence[pa.DataType]) -> None:
        self._types = list(types)
        self._chunks: list[list[pa.Array]] = []
        self._sizes: list[int] = []

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for chunk in self._chunks for array in chunk)

    def append(self, columns: Sequence[pa.Array], count: int) -> None:
        if not self._types or not count:
            return
        self._chunks.append(list(columns))
        self._sizes.append(count)
        while len(self._sizes) > 1 and self._sizes[-2] <= MERGED_AT * self._sizes[-1]:
            if sum(a.nbytes for chunk in self._chunks[-2:] for a in chunk) > _MERGED_BYTES:
                break
            self._chunks[-2:] = [concatenated(self._chunks[-2:])]
            self._sizes[-2:] = [sum(self._sizes[-2:])]

    def take(self, columns: Sequence[int], rows: I64) -> list[pa.Array]:
        """The `columns` of the given rows, in their order."""
        if len(self._chunks) == 1:
            indexes = pa.array(rows)
            return [self._chunks[0][column].take(indexes) for column in columns]
        if not len(rows) or not columns:
            return [pa.array([], self._types[column]) for column in columns]
        starts = np.cumsum([0, *self._sizes[:-1]])
        chunk_of = np.searchsorted(starts, rows, side="right") - 1
        order = np.argsort(chunk_of, kind="stable")
        bounds = np.searchsorted(chunk_of[order], np.arange(len(starts) + 1))
        parts = [
            (self._chunks[i], pa.array(rows[order[low:high]] - starts[i]))
            for i, (low, high) in enumerate(pairwise(bounds))
            if low < high
        ]
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        indexes = pa.array(back)
        return [
            pa.concat_arrays([chunk[column].take(of) for chunk, of in parts]).take(indexes)
            for column in columns
        ]

    def keep(self, rows: Mask) -> None:
        chunks, sizes, start = [], [], 0
        for chunk, size in zip(self._chunks, self._sizes, strict=True):
            mask = rows[start : start + size]
            start += size
            if kept := int(np.count_nonzero(mask)):
                chunks.append([array.filter(pa.array(mask)) for array in chunk])
                sizes.append(kept)
        self._chunks, self._sizes = chunks, sizes


def concatenated(chunks: Sequence[Sequence[pa.Array]]) -> list[pa.Array]:
    """The columns of the chunks, one after the other."""
    return [pa.concat_arrays(list(parts)) for parts in zip(*chunks, strict=True)]


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_BYTES = np.uint64(0xD6E8FEB86659FD93)


def hashable(type_: pa.DataType) -> bool:
    t = pa.types
    return bool(
        t.is_boolean(type_)
        or t.is_integer(type_)
        or t.is_floating(type_)
        or t.is_temporal(type_)
        or t.is_decimal128(type_)
        or _is_text(type_)
    )


def valid(column: pa.Array) -> Mask:
    mask: Mask = column.is_valid().to_numpy(zero_copy_only=False)
    return mask


def hashed(column: pa.Array) -> U64:
    """A hash of each value; for a NULL, any number."""
    t, type_ = pa.types, column.type
    if _is_text(type_):
        return _mixed(_of_text(column))
    if t.is_decimal128(type_):
        words = np.frombuffer(column.buffers()[1], np.uint64)
        low, high = words[2 * column.offset : 2 * (column.offset + len(column))].reshape(-1, 2).T
        return _mixed(low ^ _mixed(high))
    if t.is_boolean(type_):
        column = column.cast(pa.int8())
    elif t.is_temporal(type_):
        column = column.view(pa.int64() if type_.bit_width == 64 else pa.int32())
    values = column.fill_null(0).to_numpy(zero_copy_only=False)
    if t.is_floating(type_):
        values = values.astype(np.float64) + 0.0  # -0.0 becomes 0.0
        values[np.isnan(values)] = np.nan  # one of the many
        return _mixed(values.view(np.uint64))
    return _mixed(values.astype(np.int64).view(np.uint64))


def row_hashes(columns: Sequence[pa.ChunkedArray], rows: int) -> U64:
    """A hash of each row, of columns of any types. NULL is the same as NULL, as in GROUP BY."""
    parts = [_nullable(one) for column in columns for one in _flat(_whole(column))]
    return combined(parts) if parts else np.zeros(rows, np.uint64)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _flat(column: pa.Array) -> Iterator[pa.Array]:
    """Structs as their fields, which are NULL where these are."""
    if pa.types.is_struct(column.type):
        yield column.is_valid()
        for field in column.flatten():
            yield from _flat(field)
    else:
        yield column


def _nullable(column: pa.Array) -> U64:
    if pa.types.is_null(column.type):
        return np.full(len(column), _GOLDEN)
    hashes = hashed(column) if hashable(column.type) else _hashed_lists(column)
    return hashes if not column.null_count else np.where(valid(column), hashes, _GOLDEN)


def _hashed_lists(column: pa.Array) -> U64:
    """The hashes of the items of each list, one by one."""
    offsets = column.offsets.to_numpy()
    if pa.types.is_map(column.type):
        items = pa.StructArray.from_arrays([column.keys, column.items], ["key", "value"])
    else:
        items = column.values
    hashes = row_hashes([pa.chunked_array([items])], len(items)).tobytes()
    word = np.uint64().itemsize
    bounds = zip((offsets[:-1] * word).tolist(), (offsets[1:] * word).tolist(), strict=True)
    digests = b"".join(blake2b(hashes[low:high], digest_size=word).digest() for low, high in bounds)
    return np.frombuffer(digests, np.uint64)


def combined(parts: Sequence[U64]) -> U64:
    """One hash of several columns' hashes, in their order."""
    result = parts[0]
    for part in parts[1:]:
        result = _mixed(result * _GOLDEN + part)
    return result


def _mixed(words: U64) -> U64:
    """The words with their bits mixed (the finaliser of splitmix64)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _is_text(type_: pa.DataType) -> bool:
    t = pa.types
    return bool(
        t.is_string(type_)
        or t.is_binary(type_)
        or t.is_large_string(type_)
        or t.is_large_binary(type_)
    )


def _of_text(column: pa.Array) -> U64:
    """A polynomial in each value's bytes, computed from differences of a running sum over all of
    them.
    """
    wide = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    _, offsets_buffer, data_buffer = column.buffers()
    if not len(column) or offsets_buffer is None:
        return np.zeros(len(column), np.uint64)
    offsets = np.frombuffer(offsets_buffer, np.int64 if wide else np.int32)
    offsets = offsets[column.offset : column.offset + len(column) + 1].astype(np.int64)
    lengths = np.diff(offsets)
    if not lengths.any() or data_buffer is None:
        return np.zeros(len(column), np.uint64)
    data = np.frombuffer(data_buffer, np.uint8)[offsets[0] : offsets[-1]]
    offsets = offsets - offsets[0]
    powers = np.cumprod(np.full(lengths.max(), _BYTES))
    within = np.arange(len(data)) - np.repeat(offsets[:-1], lengths)
    sums = np.zeros(len(data) + 1, np.uint64)
    # One more than the byte, so that trailing zero bytes count.
    np.cumsum((data.astype(np.uint64) + np.uint64(1)) * powers[within], out=sums[1:])
    result: U64 = sums[offsets[1:]] - sums[offsets[:-1]]
    return result
