"""Files as a stream and as a table: CSV, JSON lines, Parquet."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from anabranch.connectors.files.paths import FORMATS, absolute, find_files, guess_format
from anabranch.connectors.files.paths import read as read_places
from anabranch.connectors.files.read_csv import CsvReader
from anabranch.connectors.files.read_json import JsonReader
from anabranch.connectors.files.read_lines import MAX_LINE
from anabranch.connectors.files.read_parquet import ParquetReader
from anabranch.connectors.formats.table_builder import ON_ERROR
from anabranch.connectors.options import TEXT, Option, OptionKind, take
from anabranch.connectors.source import Cursor, Source, SourceContext
from anabranch.connectors.table import TableContext, TableReader, refresh_option
from anabranch.errors import CannotResume, ConfigError, SourceError
from anabranch.plan.places import Place


class FileReader(Protocol):
    """A reader of one file format."""

    def __init__(self, context: SourceContext, on_error: str, max_line: int) -> None: ...

    def check(self, file: Path) -> None:
        """Raises SourceError or OSError if the file can never be read."""

    def read(
        self, file: Path, start: Any = None, until: Any = None
    ) -> Iterator[tuple[pa.Table, Any]]:
        """Tables, each with a mark of the place after it, which is JSON data. Reading begins at the
        mark `start`; a reading that is to end at the mark `until` may look no further.
        """


_READERS: dict[str, type[FileReader]] = {
    "csv": CsvReader,
    "json": JsonReader,
    "parquet": ParquetReader,
}


def _speed(value: Any) -> float | None:
    if value == "max":
        return None
    if isinstance(value, bool) or not 0 < float(value) < float("inf"):
        raise ValueError
    return float(value)


class FileSource(Source):
    """Reads a file, a folder of files or a pattern once, in name order."""

    options: ClassVar[tuple[Option, ...]] = (
        Option("path", TEXT, "a file, a folder, or a pattern such as 'logs/*.csv'", required=True),
        Option("format", TEXT, "guessed from the suffix if left out", choices=tuple(FORMATS)),
        ON_ERROR,
        MAX_LINE,
        Option(
            "speed",
            OptionKind("speed", "'max' or a number above 0", _speed),
            "'max', or how many times faster than its event times the file is replayed",
        ),
    )
    replayable = True
    partitioned = True
    finite = True
    historic = True

    def __init__(self, context: SourceContext) -> None:
        chosen = take("file", self.options, context.options)
        self.speed: float | None = chosen["speed"]
        if self.speed is not None and not context.timestamp:
            raise ConfigError(
                "file() has a speed, but the stream has no event time",
                remedy="Add TIMESTAMP <field> to CREATE STREAM, or leave speed out.",
            )
        self.files = find_files(chosen["path"], context.base)
        self.format: str = chosen["format"] or guess_format(self.files)
        how = chosen["on_error"], chosen["max_line"]
        self.max_line: int = chosen["max_line"]
        self.skips: bool = chosen["on_error"] == "skip"
        """Rows that are malformed, rather than that it fails by them."""
        self.reader = _READERS[self.format](context, *how)
        for file in self.files:
            with _told(file):
                self.reader.check(file)
        quiet = replace(context, skipped=lambda rows: None)
        self._rereader = _READERS[self.format](quiet, *how)
        self._stopped = context.stopped

    @classmethod
    def places(cls, options: Mapping[str, Any], base: Path) -> list[Place]:
        return read_places(absolute(options["path"], base))

    @classmethod
    def look(cls, options: Mapping[str, Any], base: Path) -> None:
        find_files(options["path"], base)

    def start_cursor(self) -> Cursor:
        return {"file": str(self.files[0]), "at": None}

    def read_from(self, cursor: Cursor) -> Iterator[tuple[pa.Table, Cursor]]:
        return self._tables(self.reader, cursor)

    def reread(self, begin: Cursor, end: Cursor) -> pa.Table:
        for table, behind in self._tables(self._rereader, begin, end):
            if behind == end:
                return table
            break
        raise _changed(end["file"])

    def reread_many(self, begin: Cursor, ends: Iterator[Cursor]) -> Iterator[tuple[pa.Table, int]]:
        """Reads the tables in one go, as long as they end where they ended the first time."""
        reading: Iterator[tuple[pa.Table, Cursor]] = iter(())
        for end in ends:
            table, behind = next(reading, (None, None))
            if table is None or behind != end:
                table = self.reread(begin, end)
                reading = self._tables(self._rereader, end)
            yield table, 1
            begin = end

    def _tables(
        self, reader: FileReader, begin: Cursor, end: Cursor | None = None
    ) -> Iterator[tuple[pa.Table, Cursor]]:
        """The tables that are not empty, read by `reader`."""
        names = [str(file) for file in self.files]
        if begin["file"] not in names:
            raise _changed(begin["file"])
        for file in self.files[names.index(begin["file"]) :]:
            start = begin["at"] if str(file) == begin["file"] else None
            until = end["at"] if end and str(file) == end["file"] else None
            with _told(file):
                for table, mark in reader.read(file, start, until):
                    if table.num_rows:
                        yield table, {"file": str(file), "at": mark}
            if self._stopped.is_set():
                return


@contextmanager
def _told(file: Path) -> Iterator[None]:
    """Adds the file's name to errors in the block."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SourceError(reason, place=str(file)) from error


def _changed(file: str) -> CannotResume:
    return CannotResume(
        "the file is not the one that was read",
        place=file,
        remedy="Put it back, or drop the stream and create it again.",
    )


Stamp = tuple[tuple[str, int, int], ...]


class FileTable(TableReader):
    """A table of a file, a folder of files or a pattern; all files together are its content."""

    options: ClassVar[tuple[Option, ...]] = (
        Option("path", TEXT, "a file, a folder, or a pattern such as 'rooms/*.csv'", required=True),
        Option("format", TEXT, "guessed from the suffix if left out", choices=tuple(FORMATS)),
        MAX_LINE,
        refresh_option("how often we look whether a file has changed"),
    )

    def __init__(self, context: TableContext) -> None:
        chosen = take("file", self.options, context.options)
        self._context = context
        self._path: str = chosen["path"]
        given = {name: chosen[name] for name in ("path", "format", "max_line")}
        self._given = {name: value for name, value in given.items() if value is not None}
        self._refresh_s: float = chosen["refresh"] / 1e6
        self._seen: Stamp | None = None
        self._files(threading.Event())

    @classmethod
    def places(cls, options: Mapping[str, Any], base: Path) -> list[Place]:
        return FileSource.places(options, base)

    @classmethod
    def look(cls, options: Mapping[str, Any], base: Path) -> None:
        FileSource.look(options, base)

    def read(self, stopped: threading.Event) -> pa.Table:
        # Looked at before: what changes while we read is then read again.
        self._seen = self._stamp()
        tables = list(self._files(stopped).read())
        if stopped.is_set():
            raise SourceError("reading was stopped", place=self._path)
        return pa.concat_tables([self._context.schema.empty_table(), *tables])

    def wait(self, stopped: threading.Event, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while not stopped.is_set():
            if self._stamp() != self._seen:
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            stopped.wait(min(left, self._refresh_s))
        return False

    def close(self) -> None:
        """Does nothing: files are open only while they are read."""

    def _files(self, stopped: threading.Event) -> FileSource:
        """A new source each time, because there may be other files in the folder now."""
        context = self._context
        return FileSource(
            SourceContext(
                context.table,
                context.schema,
                None,
                self._given,
                context.base,
                spark=_no_spark,
                stopped=stopped,
            )
        )

    def _stamp(self) -> Stamp | None:
        """A stamp that differs for different contents; None if there is no content at the
        moment.
        """
        try:
            files = find_files(self._path, self._context.base)
            stats = [(str(file), os.stat(file)) for file in files]
        except (OSError, SourceError):
            return None
        return tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in stats)


def _no_spark() -> Any:
    raise AssertionError("files are read without Spark")
