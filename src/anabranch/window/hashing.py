"""Hashes of column values: equal values, as Spark's `=` sees them, have equal hashes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from anabranch.window.arrays import U64, Mask

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
