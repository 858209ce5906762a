"""CSV files with a header, block by block."""

from __future__ import annotations

import csv
from codecs import BOM_UTF8
from collections.abc import Iterator
from io import TextIOWrapper
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from anabranch.errors import SourceError
from anabranch.site.wrappers.base import SourceContext
from anabranch.site.wrappers.fields import locate
from anabranch.site.wrappers.from_text import from_text
from anabranch.site.wrappers.tables import Block, TableBuilder, source_names

BLOCK_ROWS = 20_000
_KEEP = "surrogateescape"


class CsvReader:
    """Fields may be quoted and hold newlines then. An empty field is NULL, also for STRING; a line
    without anything is no row. Fields beyond those declared are ignored."""

    def __init__(self, context: SourceContext, on_error: str) -> None:
        self._context = context
        self._names = source_names(context)
        self._builder = TableBuilder(context, on_error, from_text)

    def read(
        self, file: Path, start: Any = None, until: Any = None
    ) -> Iterator[tuple[pa.Table, Any]]:
        """A mark is the byte and the number of lines behind which it lies."""
        with file.open("rb") as data:
            records = Records(data, 0, 0)
            header = _header(records, file)
            wanted = locate(self._names, header, self._context.timestamp, str(file))
            if start is not None:
                records.let_go()
                records = Records(data, *start)
            while not self._context.stopped.is_set():
                block, more = _block(records, len(header), wanted, until)
                if block.numbers or block.malformed:
                    table = self._builder.build(block, lambda line: f"{file}:{line}")
                    yield table, [records.byte, records.line]
                if not more:
                    return


class Records:
    """The records from a byte of a file on. `byte` and `line` say what they took up so far."""

    def __init__(self, data: BinaryIO, byte: int, line: int) -> None:
        if byte == 0 and data.read(len(BOM_UTF8)) == BOM_UTF8:
            byte = len(BOM_UTF8)
        data.seek(byte)
        # Bytes that are not UTF-8 become surrogates, so that their row is found and reported.
        self._text = TextIOWrapper(data, "utf-8", errors=_KEEP, newline="")
        self._before = line
        self.byte = byte
        self._rows = csv.reader(self._lines(), strict=True)

    @property
    def line(self) -> int:
        return self._before + self._rows.line_num

    def __next__(self) -> list[str]:
        return next(self._rows)

    def _lines(self) -> Iterator[str]:
        for line in self._text:
            self.byte += len(line) if line.isascii() else len(line.encode(errors=_KEEP))
            yield line

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
    for _ in range(BLOCK_ROWS):
        if until is not None and rows.byte >= until[0]:
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
    if "unexpected end" in str(error):
        return "a quoted field is never closed"
    return f"malformed CSV: {error}"
