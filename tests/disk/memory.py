"""A folder in memory whose process or machine ends at a chosen operation."""

from __future__ import annotations

import random
from collections.abc import Callable

from anabranch.errors import StorageError


class Disk:
    """What is on it: whole files, and how much of each is synced. `dies_at`: at that operation the
    process ends, in the middle of it; nothing is written from then on."""

    def __init__(self, dies_at: int = 1 << 30, seed: int = 0) -> None:
        self.files: dict[str, bytes] = {}
        self.synced: dict[str, bytes] = {}
        self.operations = 0
        self.dies_at = dies_at
        self._rng = random.Random(seed)

    @property
    def dead(self) -> bool:
        return self.operations >= self.dies_at

    def revive(self, *, power: bool = False, dies_at: int = 1 << 30) -> None:
        """Another process finds what this one left; after a loss of `power` what was synced, and
        some of what was written behind it."""
        if power:
            for name, data in list(self.files.items()):
                kept = self.synced.get(name)
                if kept is None:
                    del self.files[name]
                elif data.startswith(kept):
                    self.files[name] = data[: self._rng.randint(len(kept), len(data))]
                else:
                    self.files[name] = kept
            for name in self.synced.keys() - self.files.keys():
                self.files[name] = self.synced[name]
        self.synced = dict(self.files)
        self.operations, self.dies_at = 0, dies_at

    def do(self, whole: Callable[[], None], half: Callable[[], None] = lambda: None) -> None:
        if self.dead:
            raise StorageError("the process has ended")
        self.operations += 1
        if self.dead:
            (half if self._rng.random() < 0.7 else whole)()
            raise StorageError("the process has ended")
        whole()

    def part(self, data: bytes) -> bytes:
        return data[: self._rng.randint(0, len(data))]


class MemoryFolder:
    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def place(self, name: str) -> str:
        return f"disk/{name}"

    def names(self) -> list[str]:
        return sorted(self._disk.files)

    def read(self, name: str) -> bytes | None:
        return self._disk.files.get(name)

    def read_at(self, name: str, offset: int, size: int) -> bytes:
        return self._disk.files.get(name, b"")[offset : offset + size]

    def size(self, name: str) -> int:
        return len(self._disk.files.get(name, b""))

    def append_to(self, name: str, size: int) -> MemoryAppending:
        return MemoryAppending(self._disk, name, size)

    def replace(self, name: str, data: bytes) -> None:
        disk = self._disk
        disk.do(lambda: disk.files.update({name: data}) or disk.synced.update({name: data}))

    def remove(self, name: str) -> None:
        disk = self._disk
        disk.do(lambda: disk.files.pop(name, None) and disk.synced.pop(name, None))

    def lock(self, name: str, holder: str) -> MemoryAppending:
        return MemoryAppending(self._disk, name, 0)


class MemoryAppending:
    def __init__(self, disk: Disk, name: str, size: int) -> None:
        self._disk, self._name = disk, name
        self._size = size

    def append(self, data: bytes) -> None:
        files, name = self._disk.files, self._name
        before = files.get(name, b"")[: self._size]

        def write(part: bytes) -> None:
            files[name] = before + part

        self._disk.do(lambda: write(data), lambda: write(self._disk.part(data)))
        self._size += len(data)

    def sync(self) -> None:
        disk, name = self._disk, self._name
        disk.do(lambda: disk.synced.update({name: disk.files[name]}))

    def close(self) -> None:
        """Nothing is held."""
