"""Arrow columns as CSV: text is quoted, NULL is an empty field without quotes, BINARY is base64,
nested values are JSON."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from pyarrow.csv import WriteOptions, write_csv

from anabranch.connectors.formats.json_text import base64_text, nested_text
from anabranch.errors import SinkError


def csv_text(table: pa.Table, *, header: bool = False) -> memoryview:
    """The CSV text of flat columns: text is quoted, NULL is an empty field without quotes."""
    buffer = pa.BufferOutputStream()
    options = WriteOptions(include_header=header, quoting_style="needed")
    try:
        write_csv(table, buffer, options)
    except pa.ArrowException as error:
        raise SinkError(f"cannot be written as CSV: {error}") from error
    return memoryview(buffer.getvalue())


def csv_rows(batch: pa.RecordBatch) -> pa.Array:
    """One text a row, as in a file but without the line break."""
    fields = [_field(writable(column)) for column in batch.columns]
    return pc.binary_join_element_wise(*fields, ",")


def _field(column: pa.Array) -> pa.Array:
    text = column.cast(pa.string())
    if pt.is_string(column.type):
        text = pc.binary_join_element_wise('"', pc.replace_substring(text, '"', '""'), '"', "")
    return pc.fill_null(text, "")


def writable(column: pa.Array) -> pa.Array:
    if pt.is_binary(column.type):
        return base64_text(column)
    return nested_text(column) if pt.is_nested(column.type) else column
