"""Reads CSV files with a header, block by block."""

from __future__ import annotations

import csv
import threading
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from anabranch.connectors.files.read_lines import Unchanged, too_long
from anabranch.connectors.formats.plain_csv import (
    filled_lines,
    from_csv,
    is_plain,
    line_ends,
    plain_columns,
)
from anabranch.connectors.formats.rows import explained
from anabranch.connectors.formats.table_builder import Block, TableBuilder, locate, source_names
from anabranch.connectors.source import SourceContext
from anabranch.errors import SourceError

BLOCK_ROWS = 20_000
BLOCK_BYTES = 8_000_000
"""No block goes on behind the row with which it has so many."""
_KEEP = "surrogateescape"
_PIECE = 1 << 18
_BREAKS = ("\n", "\r")


class CsvReader:
    """A reader of CSV. Quoted fields may hold newlines. An empty field is NULL, also for STRING; an
    empty line is no row. Fields that are not declared are ignored.
    """

    def __init__(self, context: SourceContext, on_error: str, max_line: int) -> None:
        self._context = context
        self._max_line = max_line
        self._skip = on_error == "skip"
        self._names = source_names(context)
        self._builder = TableBuilder(context, on_error, from_csv)

    def check(self, file: Path) -> None:
        with file.open("rb") as data:
            self._header(data, Unchanged(data, 0), file)

    def _header(self, data: BinaryIO, unchanged: Unchanged, file: Path) -> _Rows:
        records = self._records(data, unchanged, 0)
        names = _header(records, file)
        wanted = locate(self._names, names, self._context.timestamp, str(file))
        records.let_go()
        return _Rows(len(names), wanted, records.byte, records.line)

    def read(
        self, file: Path, start: Any = None, until: Any = None
    ) -> Iterator[tuple[pa.Table, Any]]:
        """Reads tables. A mark is a byte of the file and the number of lines before it. The number
        is None where nobody knows it; it is counted when a message has to name a line.
        """
        with file.open("rb") as data:
            unchanged = Unchanged(data, start[0] if start else 0)
            rows = self._header(data, unchanged, file)
            byte, line = start or (rows.byte, rows.line)
            more = True

            def place(number: int) -> str:
                before = _lines_before(data, byte) if line is None else line
                return f"{file}:{before + number}"

            while more and not self._context.stopped.is_set():
                size = BLOCK_BYTES if until is None else min(BLOCK_BYTES, until[0] - byte)
                if size <= 0:
                    return
                data.seek(byte)
                taken = self._plain(data, unchanged, rows, size)
                if taken is None:
                    taken = self._strict(data, unchanged, rows, byte, size)
                if self._context.stopped.is_set():
                    return
                table = None
                if len(taken.block.numbers) or taken.block.malformed:
                    table = self._builder.build(taken.block, place)
                byte, more = byte + taken.size, taken.more
                line = None if line is None else line + taken.lines
                if table is not None:
                    yield table, [byte, line]

    def _plain(self, data: BinaryIO, unchanged: Unchanged, rows: _Rows, size: int) -> _Taken | None:
        """The block that `_strict` would give; None if only `_strict` can read it."""
        block = _whole_lines(data, size, self._max_line)
        if block is None:
            return None
        text, ends, more = block
        if not is_plain(text, ends, self._max_line):
            return None
        columns: Sequence[Any] | None = [()] * len(rows.wanted)
        numbers = filled_lines(text, ends)
        if len(numbers):
            columns = plain_columns(text, rows.width, rows.wanted, self._builder.types)
        if columns is None or len(columns[0]) != len(numbers):
            return None
        if not more:
            unchanged.check_end(whole=not text or text.endswith(b"\n"))
        lines = len(ends) + bool(text and not text.endswith(b"\n"))
        return _Taken(Block(columns, numbers), len(text), lines, more)

    def _strict(
        self, data: BinaryIO, unchanged: Unchanged, rows: _Rows, byte: int, size: int
    ) -> _Taken:
        records = self._records(data, unchanged, byte)
        block, more = _block(records, rows, byte + size)
        records.let_go()
        return _Taken(block, records.byte - byte, records.line, more)

    def _records(self, data: BinaryIO, unchanged: Unchanged, byte: int) -> CsvRecords:
        limit, stopped = self._max_line, self._context.stopped
        return CsvRecords(data, byte, limit, stopped, skip=self._skip, unchanged=unchanged)


@dataclass(frozen=True)
class _Rows:
    """The content of a header: how many fields a row has, and where the wanted ones are. It ends at
    a byte, and has a number of lines.
    """

    width: int
    wanted: list[int]
    byte: int
    line: int


@dataclass(frozen=True)
class _Taken:
    """A block, whose rows are numbered from 1 on by their lines, with the number of bytes and lines
    that it takes up in the file; `more` says that other rows may follow.
    """

    block: Block
    size: int
    lines: int
    more: bool


def _whole_lines(
    data: BinaryIO, size: int, longest: int
) -> tuple[bytes, np.ndarray[Any, Any], bool] | None:
    """Enough lines for `size` bytes or BLOCK_ROWS, where they end, and whether there may be more.
    None if a line is longer than `longest`; little more than that is read of it.
    """
    pieces: list[bytes] = []
    total = lines = last = 0
    more = True
    while lines < BLOCK_ROWS and (total < size or last < size):
        piece = data.read(_PIECE)
        if not piece:
            more = False
            break
        pieces.append(piece)
        lines += piece.count(b"\n")
        last = max(last, total + piece.rfind(b"\n") + 1) if b"\n" in piece else last
        total += len(piece)
        if total - last > longest:
            return None
    text = b"".join(pieces)
    ends = line_ends(text)
    wanted = min(BLOCK_ROWS, int(np.searchsorted(ends, size - 1)) + 1)
    if wanted <= len(ends):
        cut = int(ends[wanted - 1]) + 1
        return text[:cut], ends[:wanted], more or cut < len(text)
    return text, ends, more


def _lines_before(data: BinaryIO, byte: int) -> int:
    data.seek(0)
    lines = 0
    while byte > 0 and (piece := data.read(min(byte, _PIECE))):
        lines += piece.count(b"\n")
        byte -= len(piece)
    return lines


class TooLong(csv.Error):
    pass


class CsvRecords:
    """The records from a byte of a file on. TooLong is raised for a record longer than `limit`, or
    it is passed over if `skip`. `byte` says how far they reach, `line` how many lines they took up.
    """

    def __init__(
        self,
        data: BinaryIO,
        byte: int,
        limit: int,
        stopped: threading.Event,
        *,
        skip: bool,
        unchanged: Unchanged | None = None,
    ) -> None:
        self._unchanged = unchanged or Unchanged(data, byte)
        if byte == 0:
            data.seek(0)
            byte = len(BOM_UTF8) if data.read(len(BOM_UTF8)) == BOM_UTF8 else 0
        data.seek(byte)
        # Bytes that are not UTF-8 become surrogates, so that their row is found and reported.
        self._text = TextIOWrapper(data, "utf-8", errors=_KEEP, newline="")
        self._limit = limit
        self._stopped = stopped
        self._skip = skip
        self.byte = byte
        self._start = byte
        self._begin(0)

    def _begin(self, line: int) -> None:
        self._before = line
        self._rows = csv.reader(self._lines(), strict=True)

    @property
    def line(self) -> int:
        return self._before + self._rows.line_num

    def __next__(self) -> list[str]:
        self._start = self.byte
        try:
            return next(self._rows)
        except TooLong:
            self._begin(self.line + 1)  # the reader has ended with what it was fed by
            raise

    def _lines(self) -> Iterator[str]:
        while line := self._text.readline(self._limit + 1):
            self._count(line)
            if len(line) <= self._limit and not line.endswith(_BREAKS):
                self._unchanged.check_end(whole=False)
            if self.byte - self._start > self._limit:
                if self._skip and not line.endswith(_BREAKS):
                    self._pass_over()
                raise TooLong(too_long(self._limit))
            yield line
        self._unchanged.check_end(whole=True)

    def _pass_over(self) -> None:
        """Passes over the rest of a line."""
        while not self._stopped.is_set():
            piece = self._text.readline(_PIECE)
            self._count(piece)
            if not piece or piece.endswith(_BREAKS):
                return

    def _count(self, text: str) -> None:
        self.byte += len(text) if text.isascii() else len(text.encode(errors=_KEEP))

    def let_go(self) -> None:
        """Lets go of the file, which would otherwise be closed when this object is collected."""
        self._text.detach()


def _header(rows: CsvRecords, file: Path) -> list[str]:
    try:
        return [name.strip() for name in next(rows)]
    except StopIteration:
        raise SourceError(
            "the file is empty", place=str(file), remedy="Its first line must name the columns."
        ) from None
    except csv.Error as error:
        raise SourceError(f"malformed header: {error}", place=f"{file}:1") from error


def _block(records: CsvRecords, rows: _Rows, end: int) -> tuple[Block, bool]:
    """The next rows, at most to the byte `end`, by columns, and whether there may be more. A row
    that spans several lines gets the number of its first.
    """
    rows_read: list[list[str]] = []
    numbers: list[int] = []
    malformed: dict[int, str] = {}
    for _ in range(BLOCK_ROWS):
        if records.byte >= end:
            break
        line = records.line + 1
        try:
            record = next(records)
        except StopIteration:
            return Block(_columns(rows_read, rows.wanted), numbers, malformed), False
        except csv.Error as error:
            malformed[line] = _explain(error)
            continue
        if len(record) == rows.width:
            rows_read.append(record)
            numbers.append(line)
        elif record:
            malformed[line] = f"the line has {len(record)} fields where the header has {rows.width}"
    return Block(_columns(rows_read, rows.wanted), numbers, malformed), True


def _columns(records: list[list[str]], wanted: list[int]) -> list[tuple[str, ...]]:
    columns = list(zip(*records, strict=True))
    return [columns[index] if columns else () for index in wanted]


def _explain(error: csv.Error) -> str:
    return str(error) if isinstance(error, TooLong) else explained(error)
