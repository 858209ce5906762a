"""Results as a folder of Parquet files.

Rows are encoded as they come and go to a file whose name begins with a dot, which readers ignore;
once it is whole it is renamed. Names carry the first position, so that name order is stream order.
Encoded rows cannot be taken back, so what the disk does not take waits in memory, and the next call
says so before it takes any more rows.
"""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.errors import SinkError
from anabranch.site.options import COUNT, TEXT, Option, take
from anabranch.site.sinks.base import SinkContext
from anabranch.site.sinks.line_file import LineFile, write_error

_GROUP_ROWS = 65_536


class ParquetSink:
    """Each file has `rows_per_file` rows, the last one fewer."""

    options: ClassVar[tuple[Option, ...]] = (
        Option("path", TEXT, "the folder; part files of an earlier run are removed", required=True),
        Option("rows_per_file", COUNT, "rows of a part file", default=1_000_000),
    )

    def __init__(self, context: SinkContext) -> None:
        chosen = take("parquet", self.options, context.options)
        self._folder = Path(os.path.abspath(context.base / Path(chosen["path"]).expanduser()))
        self._limit: int = chosen["rows_per_file"]
        self._schema = context.schema
        self._parts: list[Part] = []
        """Those not stored yet. Only the last may have fewer rows than it should."""
        self._check()

    def open(self) -> None:
        self._discard()
        try:
            self._folder.mkdir(exist_ok=True)
            for file in [*self._folder.glob("part-*.parquet"), *self._folder.glob(".part-*")]:
                file.unlink()
        except OSError as error:
            raise write_error(error, self._folder) from error

    def write(self, table: pa.Table) -> None:
        self._store()
        while table.num_rows:
            part = self._growing(table)
            taken = table.slice(0, min(_GROUP_ROWS, self._limit - part.rows))
            part.add(taken)
            if part.rows == self._limit:
                part.end()
            table = table.slice(taken.num_rows)
            with contextlib.suppress(SinkError):  # it has the rows; the next call fails
                self._store()

    def close(self) -> None:
        """Raises SinkError if a file cannot be made whole; what there is of it is removed then."""
        for part in self._parts:
            part.end()
        try:
            self._store()
        finally:
            self._discard()

    def _discard(self) -> None:
        while self._parts:
            self._parts.pop().discard()

    def _growing(self, table: pa.Table) -> Part:
        if not self._parts or self._parts[-1].ended:
            self._parts.append(Part(self._schema, self._folder, table["_pos"][0].as_py()))
        return self._parts[-1]

    def _store(self) -> None:
        """What fails stays, to be tried again by the next call."""
        while self._parts:
            self._parts[0].store()
            if not self._parts[0].ended:
                return
            del self._parts[0]

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

    def __init__(self, schema: pa.Schema, folder: Path, first: int) -> None:
        self.rows = 0
        self.ended = False
        self._schema = schema
        self._path = folder / f"part-{first:020d}.parquet"
        self._waiting: list[pa.Table] = []
        self._encoded = _Encoded()
        self._writer: pq.ParquetWriter | None = None
        self._file: LineFile | None = None

    def add(self, table: pa.Table) -> None:
        self._waiting.append(table)
        self.rows += table.num_rows
        if sum(waiting.num_rows for waiting in self._waiting) >= _GROUP_ROWS:
            self._encode()

    def end(self) -> None:
        """No rows follow. Idempotent."""
        if not self.ended:
            self._encode().close()
            self.ended = True

    def store(self) -> None:
        """All that is encoded is on the disk afterwards, under the file's own name if it is whole;
        or SinkError is raised and nothing has changed."""
        if self._encoded.pieces:
            if self._file is None:
                file = LineFile(f".{self._path.name}", self._path.parent)
                file.open()
                self._file = file
            self._file.add(b"".join(self._encoded.pieces))
            self._encoded.pieces.clear()
        if self.ended and self._file:
            try:
                self._file.path.rename(self._path)
            except OSError as error:
                raise write_error(error, self._path) from error
            self._file.close()

    def discard(self) -> None:
        """Leave nothing of a file that is not whole."""
        if self._file:
            self._file.close()
            self._file.path.unlink(missing_ok=True)

    def _encode(self) -> pq.ParquetWriter:
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._encoded, self._schema)
        if self._waiting:
            self._writer.write_table(pa.concat_tables(self._waiting).cast(self._schema))
            self._waiting = []
        return self._writer


class _Encoded(io.RawIOBase):
    """What a Parquet writer has written."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.pieces.append(bytes(data))
        return len(data)
