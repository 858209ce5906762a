"""A folder of files to which whole lines are added, one for each partition.

What is added together is there as a whole after a crash, or not at all: a hidden file says, before
lines are added, how long each file was, and afterwards up to which position all is there.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

from anabranch.connectors.files.line_file import LineFile, write_error
from anabranch.errors import SinkError

_RECORD = ".positions"


class LineFolder:
    def __init__(self, path: Path, pattern: str, file: str) -> None:
        """`file` is the name of the files in folders that fit `pattern`. Raises SinkError if no
        folder can be there.
        """
        self.path = path
        self._pattern = pattern
        self._file = file
        self.written = 0
        """The last position that is there, with all before it."""
        check_folder(path)

    def open(self, *, keep: bool) -> None:
        try:
            self.path.mkdir(exist_ok=True)
            self._take_back() if keep else self._clear()
        except OSError as error:
            raise write_error(error, self.path) from error

    def _clear(self) -> None:
        for file in self.path.glob(f"{self._pattern}/{self._file}"):
            file.unlink()
            for folder in list(file.parents)[: self._pattern.count("/") + 1]:
                with contextlib.suppress(OSError):  # others have put something there
                    folder.rmdir()
        (self.path / _RECORD).unlink(missing_ok=True)
        self.written = 0

    def _take_back(self) -> None:
        """Removes what was being added when the process was killed."""
        record = self.path / _RECORD
        if not record.exists():
            self._clear()
            return
        found = json.loads(record.read_text(encoding="utf-8"))
        self._cut_back(found["sizes"])
        self.written = found["written"]

    def add(self, lines: Mapping[str, bytes], head: bytes, last: int) -> None:
        """Adds lines by folder, after `head` where a file begins; `last` is their last position.
        All of them are there afterwards, or SinkError is raised and none is.
        """
        files = {f"{folder}/{self._file}": text for folder, text in lines.items()}
        sizes = {name: self._size(name) for name in files}
        self._record(sizes)
        try:
            for name, text in files.items():
                self._add(name, text if sizes[name] else head + text)
        except SinkError:
            with contextlib.suppress(OSError):
                self._cut_back(sizes)
            raise
        before, self.written = self.written, last
        try:
            self._record({})
        except SinkError:
            self.written = before
            with contextlib.suppress(OSError):
                self._cut_back(sizes)
            raise

    def _add(self, name: str, text: bytes) -> None:
        path = self.path / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise write_error(error, path.parent) from error
        file = LineFile(path.name, path.parent)
        file.open(keep=True)
        try:
            file.add(text)
        finally:
            file.close()

    def _size(self, name: str) -> int:
        try:
            return (self.path / name).stat().st_size
        except OSError:
            return 0

    def _cut_back(self, sizes: Mapping[str, int]) -> None:
        for name, size in sizes.items():
            path = self.path / name
            if size == 0:
                path.unlink(missing_ok=True)
            elif path.exists():
                os.truncate(path, size)

    def _record(self, sizes: Mapping[str, int]) -> None:
        """Replaces the record in one step: after a kill there is either this record or the one
        before.
        """
        record = self.path / _RECORD
        try:
            new = record.with_name(f"{_RECORD}.new")
            new.write_text(json.dumps({"written": self.written, "sizes": dict(sizes)}))
            new.rename(record)
        except OSError as error:
            raise write_error(error, record) from error


def check_folder(path: Path) -> None:
    """Raises SinkError if there can be no folder at `path` to write into."""
    parent = path.parent
    if not parent.is_dir():
        raise SinkError(
            "the folder does not exist", place=str(parent), remedy=f"Run mkdir -p {parent}."
        )
    if path.exists() and not path.is_dir():
        raise SinkError("this is a file", place=str(path), remedy="Name a folder.")
    if not os.access(path if path.exists() else parent, os.W_OK):
        raise SinkError("no permission to write", place=str(path), remedy="Choose another path.")
