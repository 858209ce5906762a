"""Reads again what a journal lists, and checks by checksums that it is the same, whatever pieces of
memory the rows of a table are in.

Slices, chunks, data under NULLs and after the last bit of a bitmap do not count; values, their
order and which of them are NULL do.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from anabranch.connectors.source import Cursor, Source
from anabranch.errors import CannotResume
from anabranch.site.sources.entries import JournalEntry


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


_REMEDY = (
    "Put back what was there, or drop the stream and create it again: that begins with what is"
    " there now."
)


def read_again(
    source: Source, entries: Iterable[JournalEntry]
) -> Iterator[tuple[pa.Table, list[JournalEntry]]]:
    """The tables of consecutive entries; several as one if the source reads in bulk. Raises
    CannotResume if a table is not what it was.
    """
    waiting: deque[JournalEntry] = deque()
    for table, count in _in_bulk(source, iter(entries), waiting):
        group = [waiting.popleft() for _ in range(count)]
        _verify(table, group)
        yield table, group


def _in_bulk(
    source: Source, entries: Iterator[JournalEntry], waiting: deque[JournalEntry]
) -> Iterator[tuple[pa.Table, int]]:
    first = next(entries, None)
    if first is None:
        return

    def ends() -> Iterator[Cursor]:
        waiting.append(first)
        yield first.after.cursor
        for entry in entries:
            waiting.append(entry)
            yield entry.after.cursor

    yield from source.reread_many(first.before.cursor, ends())


def _verify(table: pa.Table, entries: list[JournalEntry]) -> None:
    rows = sum(entry.rows for entry in entries)
    if len(table) != rows:
        raise _changed(entries, f"{rows} rows", f"{len(table)}")
    start = 0
    for entry in entries:
        part = table.slice(start, entry.rows)
        start += entry.rows
        if entry.checksum and entry.checksum != (now := checksum(part)):
            raise _changed([entry], f"rows with checksum {entry.checksum:08x}", f"{now:08x}")


def _changed(entries: list[JournalEntry], was: str, now: str) -> CannotResume:
    begin, end = entries[0].before.cursor, entries[-1].after.cursor
    return CannotResume(
        f"it cannot be read again: between {begin} and {end}, where positions from"
        f" {entries[0].first} on come from, {was} were read, and now {now}",
        remedy=_REMEDY,
    )
