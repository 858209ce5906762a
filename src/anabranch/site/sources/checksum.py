"""A checksum of the rows of a table, whatever pieces of memory they are in.

Slices, chunks, what lies under NULLs and behind the last bit of a bitmap do not count; values,
their order and which of them are NULL do.
"""

from __future__ import annotations

import zlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt


def checksum(table: pa.Table) -> int:
    crc = 0
    for column in table.columns:
        whole = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        crc = _fold(whole, crc)
    return crc


def _fold(array: pa.Array, crc: int) -> int:
    if array.null_count:
        crc = _bytes(array.is_valid(), zlib.crc32(b"NULL", crc))  # else they look like values
        array = array.drop_null()
    kind = array.type
    if pt.is_null(kind):
        return zlib.crc32(b"%d" % len(array), crc)
    if pt.is_boolean(kind):
        return _bytes(array, crc)
    if pt.is_string(kind) or pt.is_binary(kind):
        return _text(array, crc, np.dtype(np.int32))
    if pt.is_large_string(kind) or pt.is_large_binary(kind):
        return _text(array, crc, np.dtype(np.int64))
    if pt.is_struct(kind):
        for child in array.flatten():
            crc = _fold(child, crc)
        return crc
    if pt.is_map(kind):
        array = array.cast(pa.list_(pa.struct([("k", kind.key_type), ("v", kind.item_type)])))
        kind = array.type
    if pt.is_list(kind) or pt.is_large_list(kind):
        return _fold(array.flatten(), _fold(pc.list_value_length(array), crc))
    return _fixed(array, crc, kind.bit_width // 8)


def _bytes(array: pa.Array, crc: int) -> int:
    return zlib.crc32(array.cast(pa.uint8()).to_numpy(zero_copy_only=False), crc)


def _fixed(array: pa.Array, crc: int, width: int) -> int:
    values = array.buffers()[1]
    if values is None or not len(array):
        return crc
    start = array.offset * width
    return zlib.crc32(memoryview(values)[start : start + len(array) * width], crc)


def _text(array: pa.Array, crc: int, offset: np.dtype) -> int:
    _, offsets, values = array.buffers()
    if not len(array):
        return crc
    ends = np.frombuffer(offsets, offset, len(array) + 1, array.offset * offset.itemsize)
    crc = zlib.crc32(np.diff(ends).tobytes(), crc)
    return zlib.crc32(memoryview(values)[ends[0] : ends[-1]], crc) if values else crc
