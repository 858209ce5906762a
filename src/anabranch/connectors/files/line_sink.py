"""What sinks of lines have in common: they write one file, or a folder of files by partitions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from anabranch.connectors.files.line_file import LineFile
from anabranch.connectors.files.line_folder import LineFolder
from anabranch.connectors.files.own import OVERWRITE, check_own, claim
from anabranch.connectors.files.partitions import PARTITION_BY, Partitions
from anabranch.connectors.files.paths import absolute
from anabranch.connectors.options import TEXT, Option, take
from anabranch.connectors.places import written as written_place
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
