"""Files to which whole lines are added: one, or a folder with one for each partition.

A line counts once its newline is there. All lines of a table go to the operating system in one
write, without a buffer in between. A process that is killed in the middle of a large one leaves the
beginning of a line at the end of the file: formats make sure that no reader takes it for a whole
line, and the next writer of the file cuts it off. If the disk takes only part of a write, the file
is cut back to what it was before. `open` truncates: lines of an earlier run are never continued,
unless the same run goes on after a crash.

What is added together is there as a whole after a crash, or not at all: a hidden file says, before
lines are added, how long each file was, and afterwards up to which position all is there.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from anabranch.errors import SinkAway, SinkError

_TAIL_BYTES = 65_536
_PIECE_BYTES = 1 << 20
_FULL = {errno.ENOSPC: "disk full", errno.EDQUOT: "quota used up", errno.EFBIG: "file too large"}
_PASSING = (*_FULL, errno.EIO, errno.ESTALE, errno.EAGAIN)


class LineFile:
    def __init__(self, path: str, base: Path) -> None:
        """Raises SinkError if no file could be written at `path`, seen from `base`."""
        self.path = Path(os.path.abspath(base / Path(path).expanduser()))
        self._descriptor: int | None = None
        self._check()

    def open(self, *, keep: bool = False) -> None:
        """Opens the file for writing: empty, or with its whole lines if `keep`."""
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        flags |= 0 if keep else os.O_TRUNC
        self.close()
        try:
            self._descriptor = os.open(self.path, flags, 0o644)
        except OSError as error:
            raise self._failed(error) from error

    def last_line(self, quote: str = "") -> bytes:
        """The last whole line without its newline; empty if there is none. A piece of a line after
        it is cut off. Newlines between two `quote`s belong to the text; then this is the part after
        the last such newline.
        """
        if self._descriptor is None:
            raise SinkError("the file is not open", place=str(self.path))
        end = self._unquoted_end(quote) if quote else os.fstat(self._descriptor).st_size
        tail, start = b"", end
        while start and tail.count(b"\n") < 2:
            start = max(0, start - _TAIL_BYTES)
            tail = os.pread(self._descriptor, end - start, start)
        whole, newline, rest = tail.rpartition(b"\n")
        self._cut(end - len(rest))
        return whole.rpartition(b"\n")[2] if newline else b""

    def _cut(self, size: int) -> None:
        """Cuts the file to `size`. A device such as /dev/full has no length, and nothing is cut
        off.
        """
        assert self._descriptor is not None
        try:
            if os.fstat(self._descriptor).st_size != size:
                os.ftruncate(self._descriptor, size)
        except OSError as error:
            raise self._failed(error) from error

    def _unquoted_end(self, quote: str) -> int:
        """The place after the last newline that is not between quotes. Only all quotes before it
        can tell, so the whole file is read: counted forwards, then searched backwards.
        """
        assert self._descriptor is not None
        size = os.fstat(self._descriptor).st_size
        quotes = [0]
        for start in range(0, size, _PIECE_BYTES):
            quotes.append(quotes[-1] + self._piece(start).count(quote.encode()))
        for index in reversed(range(len(quotes) - 1)):
            piece = np.frombuffer(self._piece(index * _PIECE_BYTES), np.uint8)
            seen = quotes[index] + np.cumsum(piece == ord(quote))
            ends = np.flatnonzero((piece == ord("\n")) & (seen % 2 == 0))
            if len(ends):
                return index * _PIECE_BYTES + int(ends[-1]) + 1
        return 0

    def _piece(self, start: int) -> bytes:
        assert self._descriptor is not None
        return os.pread(self._descriptor, _PIECE_BYTES, start)

    def add(self, lines: bytes | memoryview) -> None:
        """Adds `lines`: all of them are in the file afterwards, or SinkError is raised and none
        is.
        """
        if self._descriptor is None:
            raise SinkError("the file is not open", place=str(self.path))
        before = os.fstat(self._descriptor).st_size
        try:
            _write_all(self._descriptor, memoryview(lines))
        except OSError as error:
            # A device such as /dev/full has no length to go back to.
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, before)
            raise self._failed(error) from error

    def sync(self) -> None:
        """Returns once what was added would survive a crash of the machine."""
        if self._descriptor is not None:
            try:
                os.fsync(self._descriptor)
            except OSError as error:
                if error.errno != errno.EINVAL:  # a device, which keeps nothing
                    raise self._failed(error) from error

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _check(self) -> None:
        folder = self.path.parent
        if not folder.is_dir():
            raise SinkError(
                "the folder does not exist", place=str(folder), remedy=f"Run mkdir -p {folder}."
            )
        if self.path.is_dir():
            raise SinkError("this is a folder", place=str(self.path), remedy="Name a file in it.")
        if self.path.exists() and not (self.path.is_file() or self.path.is_char_device()):
            raise SinkError(
                "this is neither a file nor a terminal", place=str(self.path), remedy="Name a file."
            )
        if not os.access(self.path if self.path.exists() else folder, os.W_OK):
            raise SinkError(
                "no permission to write", place=str(self.path), remedy="Choose another path."
            )

    def _failed(self, error: OSError) -> SinkError:
        return write_error(error, self.path)


def write_error(error: OSError, path: Path) -> SinkError:
    """The error for a write to `path` that failed. A full disk counts as temporary."""
    if error.errno in _FULL:
        return SinkAway(_FULL[error.errno], place=str(path), remedy="Free some space.")
    kind = SinkAway if error.errno in _PASSING else SinkError
    return kind(error.strerror or str(error), place=str(path))


def sync_folder(path: Path) -> None:
    """Returns once names that were given in the folder would survive a crash of the machine."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise write_error(error, path) from error


def _write_all(descriptor: int, data: memoryview) -> None:
    """Writes all of `data`. A short write is rare (a full disk, more than 2 GiB); the next write
    says why, or goes on.
    """
    while len(data):
        data = data[os.write(descriptor, data) :]


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
        state = json.loads(record.read_text(encoding="utf-8"))
        self._cut_back(state["sizes"])
        self.written = state["written"]

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
