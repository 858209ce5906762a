"""A disk that forgets what was not synced, tears what was being written, and is full for a while.

`Disk` is what survives processes; `SimFolder` is how one process sees it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from anabranch.errors import StorageError
from simulation.clock import Killed, Process


@dataclass
class Disk:
    """Files by name: as processes see them, and as much of them as has been synced."""

    rng: Random
    files: dict[str, bytes] = field(default_factory=dict)
    synced: dict[str, bytes] = field(default_factory=dict)
    full: bool = False
    dying: bool = False
    """Whoever writes now dies on the way."""
    fuse: tuple[int, int] | None = None
    """Whoever makes so many writes more dies in the last of them, for so long."""
    holder: Process | None = None
    """Who has the lock."""

    def lose_power(self) -> None:
        """Of what was not synced nothing is left, or some first bytes."""
        for name, data in list(self.files.items()):
            kept = self.synced.get(name)
            if kept is None:
                if self.rng.random() < 0.5:
                    del self.files[name]
                    continue
                kept = b""
            self.files[name] = self._torn(kept, data)
        self.files |= {name: data for name, data in self.synced.items() if name not in self.files}
        self.synced = dict(self.files)

    def go_back(self, files: dict[str, bytes]) -> None:
        """To an older state, of all files."""
        self.files, self.synced = dict(files), dict(files)

    def _torn(self, kept: bytes, data: bytes) -> bytes:
        if not data.startswith(kept):  # it was cut before it was written to again
            return kept
        return data[: self.rng.randint(len(kept), len(data))]

    def kill(self, calls: list[tuple[Callable[..., Any], tuple[Any, ...]]]) -> None:
        """A process dies in the middle of these."""
        self.dying = True
        for do, args in calls:
            try:
                do(*args)
            except (Killed, Exception):
                continue
        self.dying = False


class SimFolder:
    """As `disk.real.RealFolder`, of one process."""

    def __init__(self, disk: Disk, process: Process) -> None:
        self.disk = disk
        self._process = process

    def place(self, name: str) -> str:
        return f"{self._process.name}:{name}"

    def names(self) -> list[str]:
        self._may_fail("")
        return sorted(self.disk.files)

    def read(self, name: str) -> bytes | None:
        self._may_fail(name)
        return self.disk.files.get(name)

    def read_at(self, name: str, offset: int, size: int) -> bytes:
        self._may_fail(name)
        return self.disk.files.get(name, b"")[offset : offset + size]

    def size(self, name: str) -> int:
        return len(self.disk.files.get(name, b""))

    def append_to(self, name: str, size: int) -> SimAppending:
        return SimAppending(self, name, size)

    def replace(self, name: str, data: bytes) -> None:
        self.must_have_room(name)
        self.disk.files[name] = self.disk.synced[name] = data

    def remove(self, name: str) -> None:
        self.must_have_room(name, grows=False)
        self.disk.files.pop(name, None)
        self.disk.synced.pop(name, None)

    def lock(self, name: str, holder: str) -> SimLock:
        other = self.disk.holder
        if other and other.alive and other is not self._process:
            raise StorageError(f"the folder is held by {other.name}", place=self.place(name))
        self.disk.holder = self._process
        return SimLock(self.disk, self._process)

    def must_have_room(self, name: str, *, grows: bool = True) -> None:
        """Raises what a full disk does to a write, and dies if the process is about to."""
        if self.disk.dying and self.disk.rng.random() < 0.5:
            raise Killed(0)
        if self.disk.fuse and not self.disk.dying:
            self._burn(*self.disk.fuse)
        if self.disk.full and grows:
            raise StorageError("No space left on device", place=self.place(name))
        self._may_fail(name)

    def _burn(self, writes: int, lasts: int) -> None:
        self.disk.fuse = (writes - 1, lasts) if writes > 1 else None
        if writes == 1:
            raise Killed(lasts)

    def _may_fail(self, name: str) -> None:
        if self._process.fails_now():
            raise StorageError("Input/output error", place=self.place(name))


class SimAppending:
    def __init__(self, folder: SimFolder, name: str, size: int) -> None:
        self._folder = folder
        self._name = name
        self._size = size
        if name not in folder.disk.files:
            folder.must_have_room(name)
            folder.disk.files[name] = b""

    def append(self, data: bytes) -> None:
        disk = self._folder.disk
        whole = disk.files.get(self._name, b"")[: self._size]
        try:
            self._folder.must_have_room(self._name)
        except (StorageError, Killed):
            disk.files[self._name] = whole + data[: disk.rng.randint(0, len(data))]
            raise
        disk.files[self._name] = whole + data
        self._size += len(data)

    def sync(self) -> None:
        """After an error some of it may have been synced all the same."""
        disk = self._folder.disk
        if disk.dying:
            raise Killed(0)
        self._folder.must_have_room(self._name)
        disk.synced[self._name] = disk.files[self._name]

    def close(self) -> None:
        """Nothing is held."""


class SimLock:
    def __init__(self, disk: Disk, process: Process) -> None:
        self._disk = disk
        self._process = process

    def close(self) -> None:
        if self._disk.holder is self._process:
            self._disk.holder = None
