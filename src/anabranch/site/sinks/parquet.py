"""Results as a folder of Parquet files.

Rows are encoded as they come, but kept in memory until their file is whole: an unfinished Parquet
file cannot be read anyway, and a failing write could not be taken back out of it. A whole file is
written under a name with a dot, which readers ignore, and renamed. Names carry the first position,
so that name order is stream order.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.errors import SinkError
from anabranch.site.options import COUNT, TEXT, Option, take
from anabranch.site.sinks.base import SinkContext
from anabranch.site.sinks.line_file import write_error

_GROUP_ROWS = 65_536


class ParquetSink:
    """Each file has `rows_per_file` rows, the last one fewer. A full file is written by the next
    `write` or by `close`, so that a failure is never about rows that were not accepted yet."""

    options: ClassVar[tuple[Option, ...]] = (
        Option("path", TEXT, "the folder; part files of an earlier run are removed", required=True),
        Option("rows_per_file", COUNT, "rows of a part file", default=1_000_000),
    )

    def __init__(self, context: SinkContext) -> None:
        chosen = take("parquet", self.options, context.options)
        self._folder = Path(os.path.abspath(context.base / Path(chosen["path"]).expanduser()))
        self._limit: int = chosen["rows_per_file"]
        self._schema = context.schema
        self._whole: list[Part] = []
        self._part: Part | None = None
        self._check()

    def open(self) -> None:
        self._whole, self._part = [], None
        try:
            self._folder.mkdir(exist_ok=True)
            for file in [*self._folder.glob("part-*.parquet"), *self._folder.glob(".part-*")]:
                file.unlink()
        except OSError as error:
            raise write_error(error, self._folder) from error

    def write(self, table: pa.Table) -> None:
        self._store_whole()
        while table.num_rows:
            if self._part is None:
                self._part = Part(self._schema, table["_pos"][0].as_py())
            taken = table.slice(0, self._limit - self._part.rows)
            self._part.add(taken)
            table = table.slice(taken.num_rows)
            if self._part.rows == self._limit:
                self._end_part()

    def close(self) -> None:
        if self._part is not None:
            self._end_part()
        self._store_whole()

    def _end_part(self) -> None:
        if self._part is not None:
            self._whole.append(self._part)
            self._part = None

    def _store_whole(self) -> None:
        """What fails stays, to be tried again by the next call."""
        while self._whole:
            self._whole[0].store(self._folder)
            del self._whole[0]

    def _check(self) -> None:
        parent = self._folder.parent
        if not parent.is_dir():
            raise SinkError(
                "the folder does not exist", place=str(parent), remedy=f"Run mkdir -p {parent}."
            )
        if self._folder.exists() and not self._folder.is_dir():
            raise SinkError("this is a file", place=str(self._folder), remedy="Name a folder.")
        if not os.access(self._folder if self._folder.exists() else parent, os.W_OK):
            raise SinkError(
                "no permission to write", place=str(self._folder), remedy="Choose another path."
            )


class Part:
    """One file in the making. Small tables are gathered into row groups worth the name."""

    def __init__(self, schema: pa.Schema, first: int) -> None:
        self.rows = 0
        self._first = first
        self._schema = schema
        self._waiting: list[pa.Table] = []
        self._encoded = pa.BufferOutputStream()
        self._writer = pq.ParquetWriter(self._encoded, schema)
        self._content: pa.Buffer | None = None

    def add(self, table: pa.Table) -> None:
        self._waiting.append(table)
        self.rows += table.num_rows
        if sum(waiting.num_rows for waiting in self._waiting) >= _GROUP_ROWS:
            self._encode()

    def store(self, folder: Path) -> None:
        """The file is whole in `folder` afterwards, or SinkError is raised and it is not there."""
        name = f"part-{self._first:020d}.parquet"
        unfinished = folder / f".{name}"
        try:
            unfinished.write_bytes(memoryview(self._finished()))
            unfinished.rename(folder / name)
        except OSError as error:
            with contextlib.suppress(OSError):
                unfinished.unlink()
            raise write_error(error, folder / name) from error

    def _finished(self) -> pa.Buffer:
        if self._content is None:
            self._encode()
            self._writer.close()
            self._content = self._encoded.getvalue()
        return self._content

    def _encode(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.concat_tables(self._waiting).cast(self._schema))
            self._waiting = []
