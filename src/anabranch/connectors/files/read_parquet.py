"""Reads Parquet files, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.connectors.formats.columns import from_arrow
from anabranch.connectors.formats.table_builder import (
    MAX_ROWS,
    UNFIT,
    Block,
    TableBuilder,
    locate,
    source_names,
    sql_type,
)
from anabranch.connectors.source import SourceContext
from anabranch.errors import SourceError

_BUFFER = 1 << 20
"""Bytes read at a time; without it a whole row group's columns would be in memory."""


class ParquetReader:
    """A reader of Parquet. Values are cast to the declared types where no value changes by it."""

    def __init__(self, context: SourceContext, on_error: str, max_line: int) -> None:
        self._context = context
        self._names = source_names(context)
        remedy = "Fix the row or set on_error = 'skip'."
        self._builder = TableBuilder(context, on_error, from_arrow, remedy)

    def check(self, file: Path) -> None:
        with _open(file) as source:
            self._present(source, file)

    def _present(self, source: pq.ParquetFile, file: Path) -> list[str]:
        """The names that the file has for the declared columns."""
        fields = source.schema_arrow
        wanted = locate(self._names, fields.names, self._context.timestamp, str(file))
        self._check_types([fields.field(index) for index in wanted], file)
        return [fields.names[index] for index in wanted]

    def read(
        self, file: Path, start: Any = None, until: Any = None
    ) -> Iterator[tuple[pa.Table, Any]]:
        """Reads tables. A mark is the number of rows before it."""
        with _open(file) as source:
            present = self._present(source, file)
            for first, batch in _batches(source, sorted(set(present)), start or 0):
                if self._context.stopped.is_set():
                    return
                numbers = range(first + 1, first + 1 + len(batch))
                block = Block([batch.column(name) for name in present], numbers)
                table = self._builder.build(block, lambda row: f"{file}, row {row}")
                yield table, first + len(batch)

    def _check_types(self, fields: list[pa.Field], file: Path) -> None:
        """Raises SourceError if a type can never be cast: that is a mistake in the declaration, not
        a malformed row.
        """
        for field, declared in zip(fields, [*self._context.schema.types, None], strict=False):
            try:
                from_arrow(pa.array([], field.type), declared)
            except UNFIT as error:
                goal = sql_type(declared) if declared else "event time"
                raise SourceError(
                    f"{field.name} is {field.type}, which cannot become {goal}", place=str(file)
                ) from error


def _batches(
    source: pq.ParquetFile, columns: list[str], start: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The batches from the row `start` on, each with the number of rows before it. They end where
    row groups end, so that they are the same wherever reading began.
    """
    first = 0
    for group in range(source.num_row_groups):
        rows = source.metadata.row_group(group).num_rows
        if first + rows > start:
            for batch in source.iter_batches(MAX_ROWS, row_groups=[group], columns=columns):
                if first >= start:
                    yield first, batch
                first += len(batch)
        else:
            first += rows


def _open(file: Path) -> pq.ParquetFile:
    try:
        # Read ahead, a ParquetFile would keep all it has read until the end of the file.
        return pq.ParquetFile(file, buffer_size=_BUFFER, pre_buffer=False)
    except pa.ArrowInvalid as error:
        raise SourceError(
            "not a Parquet file", place=str(file), remedy="Check the path and the format option."
        ) from error
