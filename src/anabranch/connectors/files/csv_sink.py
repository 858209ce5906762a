"""Writes results as CSV."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa

from anabranch.connectors.files.line_file import LineFile
from anabranch.connectors.files.line_sink import LineSink
from anabranch.connectors.formats.csv_text import csv_text, writable
from anabranch.connectors.options import BOOLEAN, Option


class CsvSink(LineSink):
    """The query's columns, then `_pos` and `_ts`. Text is quoted, NULL is an empty field without
    quotes, BINARY is base64, nested values are JSON. A line break inside quotes ends no line.

    `_ts` is quoted too: in a line that a kill cut short, it is missing or a quote is open. Without
    it, the first digits of a time would look like one.
    """

    name = "csv"
    options: ClassVar[tuple[Option, ...]] = (
        *LineSink.common,
        Option("header", BOOLEAN, "whether the first line names the columns", default=True),
    )

    def head(self, schema: pa.Schema) -> bytes:
        return bytes(_text(schema.empty_table(), header=True)) if self.chosen["header"] else b""

    def last_position(self, file: LineFile) -> int:
        """The position in the last line. That line ends with a position and a time, or it is the
        header.
        """
        position = file.last_line('"').split(b",")[-2:-1]
        return int(position[0]) if position and position[0].isdigit() else 0

    def lines(self, table: pa.Table) -> memoryview:
        return _text(table, header=False)


def _text(table: pa.Table, *, header: bool) -> memoryview:
    columns = [writable(column.combine_chunks()) for column in table.columns]
    columns[-1] = columns[-1].cast(pa.string())
    return csv_text(pa.table(columns, names=table.column_names), header=header)
