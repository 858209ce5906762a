"""Results as a folder of Parquet files.

Rows are encoded as they come and go to a file whose name begins with a dot, which readers ignore;
once it is whole and on the disk it is renamed. Names carry the first position, so that name order
is stream order. Encoded rows cannot be taken back, so what the disk refuses waits in memory, and
the next call says so before it takes more rows.

Rows of a file that is not whole yet are not there, and are not acknowledged. A hidden file says up
to which position all rows are in whole files, and which of these were about to be renamed: so files
of several folders appear together, and a query that goes on after a failure goes on after them.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import time
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.connectors.files.line_file import LineFile, check_folder, sync_folder, write_error
from anabranch.connectors.files.paths import (
    OVERWRITE,
    PARTITION_BY,
    Partitions,
    absolute,
    check_own,
    claim,
)
from anabranch.connectors.files.paths import written as written_place
from anabranch.connectors.options import COUNT, DURATION, TEXT, Option, take
from anabranch.connectors.sink import ANEW, Beginning, Sink, SinkContext
from anabranch.errors import SinkError
from anabranch.plan.places import Place
from anabranch.stream.batch import EVENT_TIME, POSITION

_RECORD = ".positions"
_GROUP_ROWS = 65_536
_MOST_GROWING = 64
"""Files that take rows at a time: each has some in memory."""


class ParquetSink(Sink):
    """Each file has `rows_per_file` rows at most. Files are made whole when they have that many
    rows, or when rows have waited as long as `every` says; in folders, all of them at once.
    """

    resumable = True
    deferred = True
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "path",
            TEXT,
            "the folder; part files that the query wrote before are removed",
            required=True,
        ),
        PARTITION_BY,
        OVERWRITE,
        Option("rows_per_file", COUNT, "rows of a part file at most", default=1_000_000),
        Option(
            "every", DURATION, "how long a row waits at most until its file is whole", 10_000_000
        ),
    )

    def __init__(self, context: SinkContext) -> None:
        chosen = take("parquet", self.options, context.options)
        self._folder = absolute(chosen["path"], context.base)
        self._limit: int = chosen["rows_per_file"]
        self._partitions = Partitions("parquet", chosen["partition_by"], context.schema)
        self._query, self._resume = context.query, context.resume
        self._every_s: float = chosen["every"] / 1e6
        self._written = self._last = 0
        """The last position up to which all is there, and the last that was taken."""
        self._recorded: tuple[int, list[str]] | None = None
        self._waiting_since: float | None = None
        """When the oldest row came that is not there yet."""
        self._parts: dict[str, list[PartFile]] = {}
        """By folder, those not stored yet. Only the last may have fewer rows than it should; the
        folder that got rows last is the last."""
        self._overwrite: bool = chosen["overwrite"]
        check_folder(self._folder)

    def check_own(self) -> None:
        if not self._resume and any(self._earlier()):
            check_own("parquet", self._folder, self._query, overwrite=self._overwrite)

    @classmethod
    def places(cls, options: Mapping[str, Any], base: Path) -> list[Place]:
        return written_place(absolute(options["path"], base), folder=True)

    def open(self, begin: Beginning = ANEW) -> None:
        self.check_own()
        self._discard()
        try:
            self._folder.mkdir(exist_ok=True)
            claim(self._folder, self._query)
            if self._resume:
                self._go_on()
            else:
                for file in list(self._earlier()):
                    file.unlink()
                (self._folder / _RECORD).unlink(missing_ok=True)
        except OSError as error:
            raise write_error(error, self._folder) from error
        self._last = self._written

    def _go_on(self) -> None:
        """Gives files that were whole at the kill their names, and removes all others."""
        record = self._folder / _RECORD
        self._written = 0
        if record.exists():
            state = json.loads(record.read_text(encoding="utf-8"))
            self._publish(state["files"])
            self._written = state["written"]
        for file in list(self._earlier()):
            if file.name.startswith("."):
                file.unlink()

    def written(self) -> int:
        return self._written if self._resume else 0

    def settle(self) -> int:
        due = self._waiting_since
        if due is not None and time.monotonic() - due >= self._every_s:
            with contextlib.suppress(SinkError):  # the next write says so
                self._finish(everything=True)
        return self._written

    def _earlier(self) -> Iterator[Path]:
        """The files of an earlier run, whole or unfinished, in folders or not."""
        for folder in {"", self._partitions.pattern}:
            below = f"{folder}/" if folder else ""
            yield from self._folder.glob(f"{below}part-*.parquet")
            yield from self._folder.glob(f"{below}.part-*")

    def write(self, table: pa.Table) -> None:
        self._show()
        self._store()
        if not table.num_rows:
            return
        try:
            parts = list(self._partitions.split(table))
        except ValueError as error:
            raise SinkError(str(error), place=str(self._folder)) from error
        if self._waiting_since is None:
            self._waiting_since = time.monotonic()
        for folder, rows in parts:
            self._add(folder, rows)
            with contextlib.suppress(SinkError):  # it has the rows; the next call fails
                self._store()
        self._last = table["_pos"][-1].as_py()
        if not self._partitions.columns:
            with contextlib.suppress(SinkError):
                self._finish(everything=False)

    def _add(self, folder: str, table: pa.Table) -> None:
        while table.num_rows:
            part = self._growing(folder, table)
            taken = table.slice(0, min(_GROUP_ROWS, self._limit - part.rows))
            part.add(taken)
            if part.rows == self._limit:
                part.end()
            table = table.slice(taken.num_rows)

    def close(self) -> None:
        """Makes the last files whole. Raises SinkError if that fails; the unfinished file is
        removed then.
        """
        try:
            self._finish(everything=True)
        finally:
            self._discard()

    def _finish(self, *, everything: bool) -> None:
        """Makes the files whole that are full, or all files. With folders, all of them appear
        together, because only together they hold all rows up to a position.
        """
        self._show()
        parts = self._unstored()
        if not everything:
            parts = [part for part in parts if part.ended]
        if not parts:
            return
        for part in parts:
            part.end()
        self._store()
        written = self._last if everything else parts[-1].last
        names = [str(part.name.relative_to(self._folder)) for part in parts]
        self._record(written, names)
        self._recorded = written, names
        for folder, kept in list(self._parts.items()):
            self._parts[folder] = [part for part in kept if part not in parts]
            if not self._parts[folder]:
                del self._parts[folder]
        self._waiting_since = time.monotonic() if self._parts else None
        self._show()

    def _show(self) -> None:
        """Gives the files that the record calls whole their names."""
        if self._recorded:
            written, names = self._recorded
            self._publish(names)
            self._written, self._recorded = written, None

    def _record(self, written: int, files: list[str]) -> None:
        """Replaces the record in one step: after a kill there is either this record or the one
        before.
        """
        record = self._folder / _RECORD
        new = record.with_name(f"{_RECORD}.new")
        try:
            with new.open("w", encoding="utf-8") as file:
                json.dump({"written": written, "files": files}, file)
                file.flush()
                os.fsync(file.fileno())
            new.rename(record)
        except OSError as error:
            raise write_error(error, record) from error
        sync_folder(self._folder)

    def _publish(self, files: list[str]) -> None:
        """Renames the files. Calling it again does no harm."""
        folders = set()
        for name in files:
            path = self._folder / name
            hidden = path.with_name(f".{path.name}")
            try:
                with contextlib.suppress(FileNotFoundError):  # it has been renamed
                    hidden.rename(path)
            except OSError as error:
                raise write_error(error, path) from error
            folders |= {path.parent, self._folder}
        for folder in folders:
            sync_folder(folder)

    def _unstored(self) -> list[PartFile]:
        return [part for parts in self._parts.values() for part in parts]

    def _discard(self) -> None:
        for part in self._unstored():
            part.discard()
        self._parts.clear()

    def _growing(self, folder: str, table: pa.Table) -> PartFile:
        parts = self._parts[folder] = self._parts.pop(folder, [])
        if not parts or parts[-1].ended:
            first = table["_pos"][0].as_py()
            parts.append(PartFile(self._partitions.schema, self._folder, folder, first))
            for other in list(self._parts)[:-_MOST_GROWING]:
                self._parts[other][-1].end()
        return parts[-1]

    def _store(self) -> None:
        """Writes encoded rows to their files. Rows that cannot be written stay, and the next call
        tries again.
        """
        for part in self._unstored():
            part.store()
            if part.ended:
                part.sync()  # of very many folders few have an open file


class PartFile:
    """One unfinished file. Small tables are gathered into row groups of a useful size."""

    def __init__(self, schema: pa.Schema, root: Path, folder: str, first: int) -> None:
        """The `folder` below `root` is made if it is missing; `root` is not."""
        self.rows = 0
        self.last = 0
        """The position of its last row."""
        self.ended = False
        self._schema = schema
        self._root = root
        self.name = self._path = root / folder / f"part-{first:020d}.parquet"
        self._waiting: list[pa.Table] = []
        self._encoded = _Encoded()
        self._writer: pq.ParquetWriter | None = None
        self._file: LineFile | None = None

    def add(self, table: pa.Table) -> None:
        self._waiting.append(table)
        self.rows += table.num_rows
        self.last = table["_pos"][-1].as_py() if "_pos" in table.column_names else 0
        if sum(waiting.num_rows for waiting in self._waiting) >= _GROUP_ROWS:
            self._encode()

    def end(self) -> None:
        """Marks that no rows follow. Calling it again does no harm."""
        if not self.ended:
            self._encode().close()
            self.ended = True

    def store(self) -> None:
        """Writes all encoded rows to the hidden file, or raises SinkError and changes nothing."""
        if self._encoded.pieces:
            if self._file is None:
                self._make_folder()
                file = LineFile(f".{self._path.name}", self._path.parent)
                file.open()
                self._file = file
            self._file.add(b"".join(self._encoded.pieces))
            self._encoded.pieces.clear()

    def sync(self) -> None:
        """Returns once the file is whole and would survive a crash of the machine."""
        if self._file:
            self._file.sync()
            self._file.close()

    def _make_folder(self) -> None:
        if not self._root.is_dir():
            return  # the file says so
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise write_error(error, self._path.parent) from error

    def discard(self) -> None:
        """Removes a file that is not whole."""
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
def _encodings(schema: pa.Schema) -> dict[str, object]:
    """How columns are encoded. Positions grow and event times mostly do: their differences take
    little space, and half of the time of a dictionary, which they would not fit.
    """
    empty = io.BytesIO()
    pq.write_table(schema.empty_table(), empty)
    paths = [column.path for column in pq.ParquetFile(empty).schema]  # those of nested ones, too
    growing = [path for path in paths if path in (POSITION, EVENT_TIME)]
    return {
        "use_dictionary": [path for path in paths if path not in growing],
        "column_encoding": dict.fromkeys(growing, "DELTA_BINARY_PACKED"),
    }


class _Encoded(io.RawIOBase):
    """Collects the bytes that a Parquet writer has written."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.pieces.append(bytes(data))
        return len(data)
