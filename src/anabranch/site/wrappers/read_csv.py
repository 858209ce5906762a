"""CSV files with a header, block by block."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from anabranch.errors import SourceError
from anabranch.site.wrappers.base import SourceContext
from anabranch.site.wrappers.fields import locate
from anabranch.site.wrappers.from_text import from_text
from anabranch.site.wrappers.tables import Block, TableBuilder, source_names

BLOCK_ROWS = 20_000


class CsvReader:
    """Fields may be quoted and hold newlines then. An empty field is NULL, also for STRING; a line
    without anything is no row. Fields beyond those declared are ignored."""

    def __init__(self, context: SourceContext, on_error: str) -> None:
        self._context = context
        self._names = source_names(context)
        self._builder = TableBuilder(context, on_error, from_text)

    def read(self, file: Path) -> Iterator[pa.Table]:
        # Bytes that are not UTF-8 become surrogates, so that their row is found and reported.
        with file.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as text:
            rows = csv.reader(text, strict=True)
            header = _header(rows, file)
            wanted = locate(self._names, header, self._context.timestamp, str(file))
            while not self._context.stopped.is_set():
                block, more = _block(rows, len(header), wanted)
                if block.numbers or block.malformed:
                    yield self._builder.build(block, lambda line: f"{file}:{line}")
                if not more:
                    return


def _header(rows: Any, file: Path) -> list[str]:
    try:
        return [name.strip() for name in next(rows)]
    except StopIteration:
        raise SourceError(
            "the file is empty", place=str(file), remedy="Its first line must name the columns."
        ) from None
    except csv.Error as error:
        raise SourceError(f"malformed header: {error}", place=f"{file}:1") from error


def _block(rows: Any, width: int, wanted: list[int]) -> tuple[Block, bool]:
    """The next rows, by columns, and whether there may be more. A row that spans several lines is
    numbered by its first."""
    records: list[list[str]] = []
    numbers: list[int] = []
    malformed: dict[int, str] = {}
    for _ in range(BLOCK_ROWS):
        line = rows.line_num + 1
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
