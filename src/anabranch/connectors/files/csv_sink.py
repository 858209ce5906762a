"""Results as CSV."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from pyarrow.csv import WriteOptions, write_csv

from anabranch.connectors.files.json_text import base64_text, nested_text
from anabranch.connectors.files.line_file import LineFile
from anabranch.connectors.files.line_sink import LineSink
from anabranch.connectors.options import BOOLEAN, Option
from anabranch.errors import SinkError


class CsvSink(LineSink):
    """The query's columns, then `_pos` and `_ts`. Text is quoted, NULL is an empty field without
    quotes, BINARY is base64, nested values are JSON. A line break inside quotes ends no line.

    `_ts` is quoted too: in a line that was cut short by a kill it is missing, or a quote is
    open. Without it, the first digits of a time would look like one."""

    name = "csv"
    options: ClassVar[tuple[Option, ...]] = (
        *LineSink.common,
        Option("header", BOOLEAN, "whether the first line names the columns", default=True),
    )

    def head(self, schema: pa.Schema) -> bytes:
        return bytes(_text(schema.empty_table(), header=True)) if self.chosen["header"] else b""

    def last_position(self, file: LineFile) -> int:
        """The last line ends with a position and a time; the header's last line does not."""
        position = file.last_line('"').split(b",")[-2:-1]
        return int(position[0]) if position and position[0].isdigit() else 0

    def lines(self, table: pa.Table) -> memoryview:
        return _text(table, header=False)


def _text(table: pa.Table, *, header: bool) -> memoryview:
    columns = [_writable(column.combine_chunks()) for column in table.columns]
    columns[-1] = columns[-1].cast(pa.string())
    return csv_text(pa.table(columns, names=table.column_names), header=header)


def csv_text(table: pa.Table, *, header: bool = False) -> memoryview:
    """Of flat columns: text is quoted, NULL is an empty field without quotes."""
    buffer = pa.BufferOutputStream()
    options = WriteOptions(include_header=header, quoting_style="needed")
    try:
        write_csv(table, buffer, options)
    except pa.ArrowException as error:
        raise SinkError(f"cannot be written as CSV: {error}") from error
    return memoryview(buffer.getvalue())


def csv_rows(batch: pa.RecordBatch) -> pa.Array:
    """One text a row, as in a file but without the line break."""
    fields = [_field(_writable(column)) for column in batch.columns]
    return pc.binary_join_element_wise(*fields, ",")


def _field(column: pa.Array) -> pa.Array:
    text = column.cast(pa.string())
    if pt.is_string(column.type):
        text = pc.binary_join_element_wise('"', pc.replace_substring(text, '"', '""'), '"', "")
    return pc.fill_null(text, "")


def _writable(column: pa.Array) -> pa.Array:
    if pt.is_binary(column.type):
        return base64_text(column)
    return nested_text(column) if pt.is_nested(column.type) else column
