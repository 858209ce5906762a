"""Parquet files, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.errors import SourceError
from anabranch.site.wrappers.base import SourceContext
from anabranch.site.wrappers.fields import locate
from anabranch.site.wrappers.from_arrow import from_arrow
from anabranch.site.wrappers.tables import (
    MAX_ROWS,
    UNFIT,
    Block,
    TableBuilder,
    source_names,
    sql_type,
)

_BUFFER = 1 << 20
"""Bytes read at a time; without it a whole row group's columns would be in memory."""


class ParquetReader:
    """Values are cast to the declared types where none of them changes by it."""

    def __init__(self, context: SourceContext, on_error: str) -> None:
        self._context = context
        self._names = source_names(context)
        remedy = "Fix the row or set on_error = 'skip'."
        self._builder = TableBuilder(context, on_error, from_arrow, remedy)

    def read(self, file: Path) -> Iterator[pa.Table]:
        with _open(file) as source:
            fields = source.schema_arrow
            wanted = locate(self._names, fields.names, self._context.timestamp, str(file))
            self._check_types([fields.field(index) for index in wanted], file)
            present = [fields.names[index] for index in wanted]
            first = 1
            for batch in source.iter_batches(MAX_ROWS, columns=sorted(set(present))):
                if self._context.stopped.is_set():
                    return
                numbers = range(first, first + len(batch))
                block = Block([batch.column(name) for name in present], numbers)
                yield self._builder.build(block, lambda row: f"{file}, row {row}")
                first += len(batch)

    def _check_types(self, fields: list[pa.Field], file: Path) -> None:
        """A type that can never be cast is a mistake in the declaration, not a malformed row."""
        for field, declared in zip(fields, [*self._context.schema.types, None], strict=False):
            try:
                from_arrow(pa.array([], field.type), declared)
            except UNFIT as error:
                goal = sql_type(declared) if declared else "event time"
                raise SourceError(
                    f"{field.name} is {field.type}, which cannot become {goal}", place=str(file)
                ) from error


def _open(file: Path) -> pq.ParquetFile:
    try:
        # Read ahead, a ParquetFile would keep all it has read until the end of the file.
        return pq.ParquetFile(file, buffer_size=_BUFFER, pre_buffer=False)
    except pa.ArrowInvalid as error:
        raise SourceError(
            "not a Parquet file", place=str(file), remedy="Check the path and the format option."
        ) from error
