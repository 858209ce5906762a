"""Results as lines of text, CSV or JSON: in one file, or in a folder of files by partitions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from anabranch.connectors.files.line_file import LineFile, LineFolder
from anabranch.connectors.files.paths import (
    OVERWRITE,
    PARTITION_BY,
    Partitions,
    absolute,
    check_own,
    claim,
)
from anabranch.connectors.files.paths import written as written_place
from anabranch.connectors.formats.texts import csv_text, json_objects, text_bytes, writable
from anabranch.connectors.options import BOOLEAN, TEXT, Option, take
from anabranch.connectors.sink import ANEW, Beginning, Sink, SinkContext
from anabranch.errors import SinkError
from anabranch.plan.places import Place


class Target(Protocol):
    """The file or folder that lines go to. `head` is the text that a file begins with."""

    path: Path

    def open(self, *, keep: bool) -> None: ...
    def written(self) -> int: ...
    def add(self, table: pa.Table) -> None: ...
    def close(self) -> None: ...


class LineSink(Sink):
    """A sink of lines. The format defines `lines` and `head`."""

    name: ClassVar[str]
    resumable = True
    line_file: ClassVar[type[LineFile]] = LineFile
    common: ClassVar[tuple[Option, ...]] = (
        Option("path", TEXT, "the file; what the query wrote before is replaced", required=True),
        PARTITION_BY,
        OVERWRITE,
    )
    options: ClassVar[tuple[Option, ...]] = common

    def __init__(self, context: SinkContext) -> None:
        self.chosen: dict[str, Any] = take(self.name, self.options, context.options)
        self._context = context
        path = absolute(self.chosen["path"], context.base)
        partitions = Partitions(self.name, self.chosen["partition_by"], context.schema)
        self._target: Target
        if partitions.columns:
            self._target = _Folder(self, path, partitions)
        else:
            self._target = _File(self, path, context.schema)

    @classmethod
    def places(cls, options: Mapping[str, Any], base: Path) -> list[Place]:
        return written_place(
            absolute(options["path"], base), folder=bool(options.get("partition_by"))
        )

    def check_own(self) -> None:
        path, context = self._target.path, self._context
        if not context.resume and _is_something(path):
            check_own(self.name, path, context.query, overwrite=self.chosen["overwrite"])

    def head(self, schema: pa.Schema) -> bytes:
        """The text that a file begins with."""
        return b""

    def lines(self, table: pa.Table) -> bytes | memoryview:
        raise NotImplementedError

    def last_position(self, file: LineFile) -> int:
        """The position in the last line; an unfinished line after it is cut off."""
        raise NotImplementedError

    def open(self, begin: Beginning = ANEW) -> None:
        self.check_own()
        self._target.open(keep=self._context.resume)
        if self._target.path.is_file() or self._target.path.is_dir():
            claim(self._target.path, self._context.query)

    def written(self) -> int:
        return self._target.written() if self._context.resume else 0

    def write(self, table: pa.Table) -> None:
        if table.num_rows:
            self._target.add(table)

    def close(self) -> None:
        self._target.close()


class _File:
    def __init__(self, sink: LineSink, path: Path, schema: pa.Schema) -> None:
        self._sink = sink
        self._schema = schema
        self._file = sink.line_file(path.name, path.parent)
        self.path = self._file.path

    def open(self, *, keep: bool) -> None:
        self._file.open(keep=keep)
        head = self._sink.head(self._schema)
        if head and not (keep and self._sink.last_position(self._file)):
            self._file.open(keep=False)
            self._file.add(head)

    def written(self) -> int:
        return self._sink.last_position(self._file)

    def add(self, table: pa.Table) -> None:
        self._file.add(self._sink.lines(table))

    def close(self) -> None:
        self._file.close()


class _Folder:
    def __init__(self, sink: LineSink, path: Path, partitions: Partitions) -> None:
        self._sink = sink
        self._partitions = partitions
        self._folder = LineFolder(path, partitions.pattern, f"part.{sink.name}")
        self.path = path

    def open(self, *, keep: bool) -> None:
        self._folder.open(keep=keep)

    def written(self) -> int:
        return self._folder.written

    def add(self, table: pa.Table) -> None:
        try:
            parts = {
                name: bytes(self._sink.lines(part)) for name, part in self._partitions.split(table)
            }
        except ValueError as error:
            raise SinkError(str(error), place=str(self.path)) from error
        head = self._sink.head(self._partitions.schema)
        self._folder.add(parts, head, table["_pos"][-1].as_py())

    def close(self) -> None:
        """Does nothing: files are open only while they are written."""


def _is_something(path: Path) -> bool:
    """Whether the path holds content that would be lost."""
    if path.is_dir():
        return any(path.iterdir())
    return path.is_file() and path.stat().st_size > 0


class CsvSink(LineSink):
    """The query's columns, then `_pos` and `_ts`. Text is quoted, NULL is an empty field without
    quotes, BINARY is base64, nested values are JSON. A line break inside quotes ends no line.

    `_ts` is quoted too: in a line that a kill cut short, it is missing or a quote is open. Without
    it, the first digits of a time would look like one.
    """

    name = "csv"
    options: ClassVar[tuple[Option, ...]] = (
        *LineSink.common,
        Option("header", BOOLEAN, "whether the first line names the columns", default=True),
    )

    def head(self, schema: pa.Schema) -> bytes:
        return bytes(_text(schema.empty_table(), header=True)) if self.chosen["header"] else b""

    def last_position(self, file: LineFile) -> int:
        """The position in the last line. That line ends with a position and a time, or it is the
        header.
        """
        position = file.last_line('"').split(b",")[-2:-1]
        return int(position[0]) if position and position[0].isdigit() else 0

    def lines(self, table: pa.Table) -> memoryview:
        return _text(table, header=False)


def _text(table: pa.Table, *, header: bool) -> memoryview:
    columns = [writable(column.combine_chunks()) for column in table.columns]
    columns[-1] = columns[-1].cast(pa.string())
    return csv_text(pa.table(columns, names=table.column_names), header=header)


_PIECE_ROWS = 65_536
"""Joined at a time; an Arrow array of texts ends at 2 GB."""


class JsonlSink(LineSink):
    """One object a tuple: the query's columns, then `_pos` and `_ts`. `json_text` says how types
    are written, `line_file` how lines stay whole.
    """

    name = "jsonl"

    def last_position(self, file: LineFile) -> int:
        line = file.last_line()
        return int(json.loads(line)["_pos"]) if line else 0

    def lines(self, table: pa.Table) -> bytes:
        batches = table.to_batches(_PIECE_ROWS)
        return b"".join(text_bytes(json_objects(batch, end="\n")) for batch in batches)
