"""Results as a folder of Parquet files.

Rows are encoded as they come and go to a file whose name begins with a dot, which readers ignore;
once it is whole it is renamed. Names carry the first position, so that name order is stream order.
Encoded rows cannot be taken back, so what the disk does not take waits in memory, and the next call
says so before it takes any more rows.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.connectors.files.line_file import LineFile, write_error
from anabranch.connectors.files.line_folder import check_folder
from anabranch.connectors.files.own import OVERWRITE, check_own, claim
from anabranch.connectors.files.partitions import PARTITION_BY, Partitions
from anabranch.connectors.files.paths import absolute
from anabranch.connectors.options import COUNT, TEXT, Option, take
from anabranch.connectors.places import written as written_place
from anabranch.connectors.sink import ANEW, Beginning, SinkContext
from anabranch.errors import SinkError
from anabranch.plan.places import Place
from anabranch.stream.names import EVENT_TIME, POSITION

_GROUP_ROWS = 65_536
_MOST_GROWING = 64
"""Files that take rows at a time: each has some in memory."""


class ParquetSink:
    """Each file has `rows_per_file` rows, the last one of its folder fewer; with very many folders
    others, too."""

    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "path",
            TEXT,
            "the folder; part files that the query wrote before are removed",
            required=True,
        ),
        PARTITION_BY,
        OVERWRITE,
        Option("rows_per_file", COUNT, "rows of a part file", default=1_000_000),
    )

    def __init__(self, context: SinkContext) -> None:
        chosen = take("parquet", self.options, context.options)
        self._folder = absolute(chosen["path"], context.base)
        self._limit: int = chosen["rows_per_file"]
        self._partitions = Partitions("parquet", chosen["partition_by"], context.schema)
        self._query = context.query
        self._parts: dict[str, list[Part]] = {}
        """By folder, those not stored yet. Only the last may have fewer rows than it should; the
        folder that got rows last is the last."""
        self._overwrite: bool = chosen["overwrite"]
        check_folder(self._folder)

    def check_own(self) -> None:
        if any(self._earlier()):
            check_own("parquet", self._folder, self._query, overwrite=self._overwrite)

    def places(self) -> list[Place]:
        return written_place(self._folder, folder=True)

    def open(self, begin: Beginning = ANEW) -> None:
        self.check_own()
        self._discard()
        try:
            self._folder.mkdir(exist_ok=True)
            claim(self._folder, self._query)
            for file in list(self._earlier()):
                file.unlink()
        except OSError as error:
            raise write_error(error, self._folder) from error

    def _earlier(self) -> Iterator[Path]:
        """The files of an earlier run, whole and unfinished, in folders or not."""
        for folder in {"", self._partitions.pattern}:
            below = f"{folder}/" if folder else ""
            yield from self._folder.glob(f"{below}part-*.parquet")
            yield from self._folder.glob(f"{below}.part-*")

    def write(self, table: pa.Table) -> None:
        self._store()
        try:
            parts = list(self._partitions.split(table))
        except ValueError as error:
            raise SinkError(str(error), place=str(self._folder)) from error
        for folder, rows in parts:
            self._add(folder, rows)
            with contextlib.suppress(SinkError):  # it has the rows; the next call fails
                self._store()

    def _add(self, folder: str, table: pa.Table) -> None:
        while table.num_rows:
            part = self._growing(folder, table)
            taken = table.slice(0, min(_GROUP_ROWS, self._limit - part.rows))
            part.add(taken)
            if part.rows == self._limit:
                part.end()
            table = table.slice(taken.num_rows)

    def close(self) -> None:
        """Raises SinkError if a file cannot be made whole; what there is of it is removed then."""
        for part in self._unstored():
            part.end()
        try:
            self._store()
        finally:
            self._discard()

    def _unstored(self) -> list[Part]:
        return [part for parts in self._parts.values() for part in parts]

    def _discard(self) -> None:
        for part in self._unstored():
            part.discard()
        self._parts.clear()

    def _growing(self, folder: str, table: pa.Table) -> Part:
        parts = self._parts[folder] = self._parts.pop(folder, [])
        if not parts or parts[-1].ended:
            first = table["_pos"][0].as_py()
            parts.append(Part(self._partitions.schema, self._folder, folder, first))
            for other in list(self._parts)[:-_MOST_GROWING]:
                self._parts[other][-1].end()
        return parts[-1]

    def _store(self) -> None:
        """What fails stays, to be tried again by the next call."""
        for folder in list(self._parts):
            parts = self._parts[folder]
            while parts:
                parts[0].store()
                if not parts[0].ended:
                    break
                del parts[0]
            if not parts:
                del self._parts[folder]


class Part:
    """One file in the making. Small tables are gathered into row groups worth the name."""

    def __init__(self, schema: pa.Schema, root: Path, folder: str, first: int) -> None:
        """In the `folder` below `root`, which is made if it is missing; `root` is not."""
        self.rows = 0
        self.ended = False
        self._schema = schema
        self._root = root
        self._path = root / folder / f"part-{first:020d}.parquet"
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
                self._make_folder()
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

    def _make_folder(self) -> None:
        if not self._root.is_dir():
            return  # the file says so
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise write_error(error, self._path.parent) from error

    def discard(self) -> None:
        """Leave nothing of a file that is not whole."""
        if self._file:
            self._file.close()
            self._file.path.unlink(missing_ok=True)

    def _encode(self) -> pq.ParquetWriter:
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._encoded, self._schema, **_encodings(self._schema))
        if self._waiting:
            self._writer.write_table(pa.concat_tables(self._waiting).cast(self._schema))
            self._waiting = []
        return self._writer


@cache
def _encodings(schema: pa.Schema) -> dict[str, Any]:
    """Positions grow and event times mostly do: as differences they take little space, and half of
    the time that a dictionary costs, which they would not fit."""
    empty = io.BytesIO()
    pq.write_table(schema.empty_table(), empty)
    paths = [column.path for column in pq.ParquetFile(empty).schema]  # those of nested ones, too
    growing = [path for path in paths if path in (POSITION, EVENT_TIME)]
    return {
        "use_dictionary": [path for path in paths if path not in growing],
        "column_encoding": dict.fromkeys(growing, "DELTA_BINARY_PACKED"),
    }


class _Encoded(io.RawIOBase):
    """What a Parquet writer has written."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.pieces.append(bytes(data))
        return len(data)
