"""CSV files with a header, block by block."""

from __future__ import annotations

import csv
import threading
from codecs import BOM_UTF8
from collections.abc import Iterator
from io import TextIOWrapper
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from anabranch.connectors.files.read_lines import too_long
from anabranch.connectors.files.unchanged import Unchanged
from anabranch.connectors.formats.csv_rows import explained
from anabranch.connectors.formats.fields import locate
from anabranch.connectors.formats.from_text import from_text
from anabranch.connectors.formats.table_builder import Block, TableBuilder, source_names
from anabranch.connectors.source import SourceContext
from anabranch.errors import SourceError

BLOCK_ROWS = 20_000
BLOCK_BYTES = 8_000_000
"""No block goes on behind the row with which it has so many."""
_KEEP = "surrogateescape"
_PIECE = 1 << 18
_BREAKS = ("\n", "\r")


class CsvReader:
    """Fields may be quoted and hold newlines then. An empty field is NULL, also for STRING; a line
    without anything is no row. Fields beyond those declared are ignored."""

    def __init__(self, context: SourceContext, on_error: str, max_line: int) -> None:
        self._context = context
        self._max_line = max_line
        self._skip = on_error == "skip"
        self._names = source_names(context)
        self._builder = TableBuilder(context, on_error, from_text)

    def check(self, file: Path) -> None:
        with file.open("rb") as data:
            records = Records(data, 0, 0, self._max_line, self._context.stopped, skip=False)
            self._wanted(_header(records, file), file)
            records.let_go()

    def _wanted(self, header: list[str], file: Path) -> list[int]:
        return locate(self._names, header, self._context.timestamp, str(file))

    def read(
        self, file: Path, start: Any = None, until: Any = None
    ) -> Iterator[tuple[pa.Table, Any]]:
        """A mark is the byte and the number of lines behind which it lies."""
        with file.open("rb") as data:
            records = self._records(data, 0, 0)
            header = _header(records, file)
            wanted = self._wanted(header, file)
            if start is not None:
                records.let_go()
                records = self._records(data, *start)
            while not self._context.stopped.is_set():
                block, more = _block(records, len(header), wanted, until)
                if self._context.stopped.is_set():
                    return
                if block.numbers or block.malformed:
                    table = self._builder.build(block, lambda line: f"{file}:{line}")
                    yield table, [records.byte, records.line]
                if not more:
                    return

    def _records(self, data: BinaryIO, byte: int, line: int) -> Records:
        return Records(data, byte, line, self._max_line, self._context.stopped, skip=self._skip)


class TooLong(csv.Error):
    pass


class Records:
    """The records from a byte of a file on, none longer than `limit`: TooLong is raised for those,
    and they are passed over if `skip`. `byte` and `line` say what they took up so far."""

    def __init__(
        self,
        data: BinaryIO,
        byte: int,
        line: int,
        limit: int,
        stopped: threading.Event,
        *,
        skip: bool,
    ) -> None:
        if byte == 0 and data.read(len(BOM_UTF8)) == BOM_UTF8:
            byte = len(BOM_UTF8)
        self._unchanged = Unchanged(data, byte)
        data.seek(byte)
        # Bytes that are not UTF-8 become surrogates, so that their row is found and reported.
        self._text = TextIOWrapper(data, "utf-8", errors=_KEEP, newline="")
        self._limit = limit
        self._stopped = stopped
        self._skip = skip
        self.byte = byte
        self._start = byte
        self._begin(line)

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
        """The rest of a line."""
        while not self._stopped.is_set():
            piece = self._text.readline(_PIECE)
            self._count(piece)
            if not piece or piece.endswith(_BREAKS):
                return

    def _count(self, text: str) -> None:
        self.byte += len(text) if text.isascii() else len(text.encode(errors=_KEEP))

    def let_go(self) -> None:
        """Of the file, which would else be closed when this is garbage."""
        self._text.detach()


def _header(rows: Records, file: Path) -> list[str]:
    try:
        return [name.strip() for name in next(rows)]
    except StopIteration:
        raise SourceError(
            "the file is empty", place=str(file), remedy="Its first line must name the columns."
        ) from None
    except csv.Error as error:
        raise SourceError(f"malformed header: {error}", place=f"{file}:1") from error


def _block(rows: Records, width: int, wanted: list[int], until: Any) -> tuple[Block, bool]:
    """The next rows, at most to the mark `until`, by columns, and whether there may be more. A row
    that spans several lines is numbered by its first."""
    records: list[list[str]] = []
    numbers: list[int] = []
    malformed: dict[int, str] = {}
    end = rows.byte + BLOCK_BYTES if until is None else min(rows.byte + BLOCK_BYTES, until[0])
    for _ in range(BLOCK_ROWS):
        if rows.byte >= end:
            break
        line = rows.line + 1
        try:
            record = next(rows)
        except StopIteration:
            return Block(_columns(records, wanted), numbers, malformed), False
        except csv.Error as error:
            malformed[line] = _explain(error)
            continue
        if len(record) == width:
            records.append(record)
            numbers.append(line)
        elif record:
            malformed[line] = f"the line has {len(record)} fields where the header has {width}"
    return Block(_columns(records, wanted), numbers, malformed), True


def _columns(records: list[list[str]], wanted: list[int]) -> list[tuple[str, ...]]:
    columns = list(zip(*records, strict=True))
    return [columns[index] if columns else () for index in wanted]


def _explain(error: csv.Error) -> str:
    return str(error) if isinstance(error, TooLong) else explained(error)
