"""Ranges of text files: where to cut them, and the quick way to read plain ones."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.types as pt

from anabranch.connectors.files.read_csv import CsvRecords
from anabranch.connectors.files.source import FileSource
from anabranch.connectors.formats.columns import from_text
from anabranch.connectors.formats.table_builder import UNFIT, locate, source_names, table_schema
from anabranch.connectors.formats.times import event_type, is_event_time, micros_of
from anabranch.connectors.source import SourceContext

_PIECE = 1 << 20


def cut_lines(source: FileSource, context: SourceContext, file: Path, start: int, size: int) -> int:
    """The byte after a line that ends `size` bytes or little more after `start`, which itself
    begins a line. A line that ends within the quotes of a CSV field does not count. If a line is
    too long, which makes reading fail, the end may be inside it.
    """
    if start + size >= (whole := file.stat().st_size):
        return whole
    with file.open("rb") as data:
        is_csv = source.format == "csv"
        if is_csv and _quoted(data, start, size):
            return _cut_records(source, context, data, start, size)
        end = start + size - 1
        data.seek(end)
        while not context.stopped.is_set() and (line := data.readline(_PIECE)):
            end += len(line)
            long = end - start - size > source.max_line
            if is_csv and (b'"' in line or long):
                return _cut_records(source, context, data, start, size)
            if line.endswith(b"\n") or (long and not source.skips):
                return end
        return min(end, file.stat().st_size)


def _quoted(data: BinaryIO, start: int, size: int) -> bool:
    """Whether there is a quote, not counting a one-line header, whose names are often quoted."""
    data.seek(start)
    if start == 0:
        header = data.readline(_PIECE)
        if header.count(b'"') % 2 or not header.endswith(b"\n"):
            return True
        size -= len(header)
    return any(b'"' in piece for piece in _pieces(data, size))


def _cut_records(
    source: FileSource, context: SourceContext, data: BinaryIO, start: int, size: int
) -> int:
    """The end of the records as their reader sees them; any place after `start` once that is
    stopped.
    """
    records = CsvRecords(data, start, source.max_line, context.stopped, skip=source.skips)
    while records.byte < start + size and not context.stopped.is_set():
        try:
            next(records)
        except StopIteration:
            break
        except csv.Error:
            if not source.skips:
                break
    records.let_go()
    return max(records.byte, start + 1)


def _pieces(data: BinaryIO, size: int) -> Iterator[bytes]:
    """The next `size` bytes, in small pieces."""
    while size > 0 and (piece := data.read(min(size, _PIECE))):
        size -= len(piece)
        yield piece


def read_lines(
    source: FileSource, context: SourceContext, file: Path, start: int, until: int
) -> pa.Table:
    """The rows of whole lines. Lines that are not plain are read as the source itself reads them,
    which also says what is wrong with them.
    """
    if source.format == "csv":
        table = _plain_csv(context, file, start, until, source.max_line)
        if table is not None:
            return table
    before = _lines_before(file, start)
    mark = [start, before] if start else None
    tables = []
    for table, behind in source.reader.read(file, mark, [until, 0]):
        tables.append(table)
        if behind[0] >= until:
            break
    return pa.concat_tables(tables) if tables else table_schema(context).empty_table()


def _lines_before(file: Path, start: int) -> int:
    with file.open("rb") as data:
        return sum(piece.count(b"\n") for piece in _pieces(data, start))


def _plain_csv(
    context: SourceContext, file: Path, start: int, until: int, limit: int
) -> pa.Table | None:
    """The rows; None if there are quotes, or anything irregular."""
    with file.open("rb") as data:
        header = data.readline(limit + 1)
        data.seek(max(start, len(header)))
        block = _plain_lines(data, until - data.tell(), limit)
    if block is None or header.count(b'"') % 2 or b"\r" in header.rstrip(b"\r\n"):
        return None
    (fields,) = csv.reader([header.decode("utf-8-sig", errors="replace")])
    names = [name.strip() for name in fields]
    wanted = locate(source_names(context), names, context.timestamp, str(file))
    types: list[pa.DataType | None] = [*context.schema.types]
    if context.timestamp:
        types.append(event_type(context.unit))
    for numbers in (True, False):
        try:
            arrays = _columns(block, len(names), wanted, types, numbers=numbers)
            break
        except (*UNFIT, pa.ArrowException):
            continue
    else:
        return None
    if context.timestamp and arrays[-1].null_count:
        return None
    return pa.Table.from_arrays(arrays, schema=table_schema(context))


def _plain_lines(data: BinaryIO, size: int, limit: int) -> bytes | None:
    """The next `size` bytes, unless there is a quote in them, a line that is too long, or one that
    ends differently from most. No more than `limit` is read after the last line.
    """
    pieces, left = [], b""
    for piece in _pieces(data, size):
        left = left[left.rfind(b"\n") + 1 :] + piece
        if b'"' in piece or _too_long(left, limit):
            return None
        pieces.append(piece)
    block = b"".join(pieces)
    lone = b"\r" in block and block.count(b"\r") != block.count(b"\r\n")
    return None if lone or block.isspace() or not block else block


def _too_long(lines: bytes, limit: int) -> bool:
    """Whether a line is too long; the last line may go on."""
    at = 0
    while len(lines) - at > limit:
        end = lines.rfind(b"\n", at, at + limit)
        if end < 0:
            return True
        at = end + 1
    return False


def _columns(
    block: bytes,
    width: int,
    wanted: Sequence[int],
    types: Sequence[pa.DataType | None],
    *,
    numbers: bool,
) -> list[pa.Array]:
    """The wanted columns. With `numbers` Arrow parses numbers at once; it does not know the sign +
    and fails for it.
    """
    names = [f"c{number}" for number in range(width)]
    parsed = dict.fromkeys(names, pa.string())
    # A hexadecimal number would be one here, and is none in text.
    if numbers and b"x" not in block and b"X" not in block:
        parsed |= {names[at]: _number(type) for at, type in zip(wanted, types, strict=True)}
    raw = pa_csv.read_csv(
        pa.py_buffer(block),
        pa_csv.ReadOptions(use_threads=False, block_size=len(block), column_names=names),
        pa_csv.ParseOptions(quote_char=False),
        pa_csv.ConvertOptions(
            column_types=parsed,
            include_columns=[names[index] for index in dict.fromkeys(wanted)],
            null_values=[""],
            strings_can_be_null=False,
        ),
    )
    columns = [raw.column(names[at]).combine_chunks() for at in wanted]
    return [_converted(column, type) for column, type in zip(columns, types, strict=True)]


def _number(type: pa.DataType | None) -> pa.DataType:
    """The type that a column is parsed as: numbers as themselves, event times as whole numbers."""
    if is_event_time(type):
        return pa.int64()
    return type if pt.is_integer(type) or pt.is_floating(type) else pa.string()


def _converted(column: pa.Array, type: pa.DataType | None) -> pa.Array:
    if pt.is_string(column.type):
        return from_text(column, type)
    if is_event_time(type) and pt.is_integer(column.type):
        return micros_of(column, type)
    if column.type != type:
        raise TypeError("a column is wanted as two types")
    return column
