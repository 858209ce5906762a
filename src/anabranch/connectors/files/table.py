"""Files as a table: CSV, JSON lines, Parquet."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from anabranch.connectors.files.paths import FORMATS, find_files
from anabranch.connectors.files.read_lines import MAX_LINE
from anabranch.connectors.files.source import FileSource
from anabranch.connectors.options import TEXT, Option, take
from anabranch.connectors.source import SourceContext
from anabranch.connectors.table import TableContext, TableReader, refresh_option
from anabranch.errors import SourceError
from anabranch.plan.places import Place

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
            found = [(str(file), os.stat(file)) for file in files]
        except (OSError, SourceError):
            return None
        return tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in found)


def _no_spark() -> Any:
    raise AssertionError("files are read without Spark")
