"""A folder of the operating system's, and folders and files that are nobody else's business."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from anabranch.errors import StorageError

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def own_folder(path: Path) -> None:
    """Makes `path` a folder that only its owner can enter, and also those above it that had to be
    made. An open folder of ours is closed to others.
    """
    missing = [one for one in (path, *path.parents) if not one.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode=0o700, exist_ok=True)
    if not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "this is a file", str(path))
    found = path.stat()
    if found.st_uid == os.geteuid() and found.st_mode & _OTHERS:
        path.chmod(stat.S_IMODE(found.st_mode) & ~_OTHERS)


def readable_by_all(path: Path) -> bool:
    """Whether every user of this machine can read the file, as far as its own mode says."""
    return bool(path.stat().st_mode & stat.S_IROTH)


_NEW = ".new"
"""Behind the name of a file that is not whole yet."""
_MODE = 0o600
_REMEDY = {
    errno.ENOSPC: "Free some space.",
    errno.EDQUOT: "Free some space, or raise the quota.",
    errno.EROFS: "Mount the file system for writing.",
    errno.EACCES: "Let this user write there.",
}


class RealFolder:
    """It is made when it is opened, for its owner only."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._held: set[str] | None = None
        """What would have been removed since `hold`."""
        with _told(path):
            path.mkdir(parents=True, exist_ok=True, mode=0o700)

    def hold(self) -> None:
        """Nothing is removed until `release`: somebody copies all there is. If the process ends
        before, files are left that nobody needs, as after a kill before their removal."""
        with self._lock:
            self._held = self._held or set()

    def release(self) -> None:
        with self._lock:
            held, self._held = self._held or set(), None
        for name in sorted(held):
            self.remove(name)

    def _wants(self, name: str) -> None:
        """It is written anew, and not to be removed any more."""
        with self._lock:
            if self._held:
                self._held.discard(name)

    def place(self, name: str) -> str:
        return str(self.path / name)

    def names(self) -> list[str]:
        with _told(self.path):
            return sorted(one.name for one in self.path.iterdir() if one.suffix != _NEW)

    def read(self, name: str) -> bytes | None:
        with _told(self.path / name):
            try:
                return (self.path / name).read_bytes()
            except FileNotFoundError:
                return None

    def read_at(self, name: str, offset: int, size: int) -> bytes:
        with _told(self.path / name):
            try:
                file = os.open(self.path / name, os.O_RDONLY)
            except FileNotFoundError:
                return b""
            try:
                return os.pread(file, size, offset)
            finally:
                os.close(file)

    def size(self, name: str) -> int:
        with _told(self.path / name):
            try:
                return (self.path / name).stat().st_size
            except FileNotFoundError:
                return 0

    def append_to(self, name: str, size: int) -> RealAppending:
        self._wants(name)
        return RealAppending(self.path / name, size)

    def replace(self, name: str, data: bytes) -> None:
        self._wants(name)
        path = self.path / name
        temporary = path.with_name(name + _NEW)
        with _told(path):
            file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _MODE)
            try:
                _write(file, data, 0)
                os.fsync(file)
            finally:
                os.close(file)
            os.replace(temporary, path)
            _sync_folder(self.path)

    def remove(self, name: str) -> None:
        with self._lock:
            if self._held is not None:
                self._held.add(name)
                return
        path = self.path / name
        with _told(path):
            try:
                path.unlink()
            except FileNotFoundError:
                return
            _sync_folder(self.path)

    def lock(self, name: str, holder: str) -> RealLock:
        return RealLock(self.path / name, holder)


class RealAppending:
    def __init__(self, path: Path, size: int) -> None:
        self._path = path
        self._size = size
        self._torn = True
        """There may be something behind `size`."""
        self._named = False
        """The folder's entry of the file is synced."""
        with _told(path):
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, _MODE)
        self._open = True

    def append(self, data: bytes) -> None:
        with _told(self._path):
            if self._torn:
                os.ftruncate(self._file, self._size)
            self._torn = True
            try:
                _write(self._file, data, self._size)
            except OSError:
                with suppress(OSError):  # else it is done before the next
                    os.ftruncate(self._file, self._size)
                raise
        self._size += len(data)
        self._torn = False

    def sync(self) -> None:
        with _told(self._path):
            os.fdatasync(self._file)
            if not self._named:
                _sync_folder(self._path.parent)
                self._named = True

    def close(self) -> None:
        if self._open:
            self._open = False
            os.close(self._file)


class RealLock:
    """A lock file, which says who holds it."""

    def __init__(self, path: Path, holder: str) -> None:
        with _told(path):
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, _MODE)
            self._open = True
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                other = os.pread(self._file, 1000, 0).decode(errors="replace").strip()
                self.close()
                raise StorageError(
                    f"the folder is held by {other or 'another process'}",
                    place=str(path.parent),
                    remedy="End that process first, or choose another folder.",
                ) from None
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, holder.encode(), 0)

    def close(self) -> None:
        if self._open:
            self._open = False
            os.close(self._file)


def _write(file: int, data: bytes, at: int) -> None:
    view = memoryview(data)
    while view:
        done = os.pwrite(file, view, at)
        view, at = view[done:], at + done


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        remedy = _REMEDY.get(error.errno or 0, "")
        raise StorageError(reason, place=str(path), remedy=remedy) from error
