"""A folder whose n-th call is the last that its process makes."""

from __future__ import annotations

from anabranch.disk.folder import Appending, Folder, HeldLock


class Failed(BaseException):
    """The process is killed here; nothing catches that."""


class FailingFolder:
    """Passes on what it is asked until the `step`-th call that changes something. Of that one only
    the first `torn` bytes happen, where bytes are written."""

    def __init__(self, folder: Folder, step: int, torn: int = 0) -> None:
        self._folder = folder
        self.left = step
        self.torn = torn

    def use_step(self) -> None:
        if self.left <= 0:
            raise Failed
        self.left -= 1

    def place(self, name: str) -> str:
        return self._folder.place(name)

    def names(self) -> list[str]:
        return self._folder.names()

    def read(self, name: str) -> bytes | None:
        return self._folder.read(name)

    def read_at(self, name: str, offset: int, size: int) -> bytes:
        return self._folder.read_at(name, offset, size)

    def size(self, name: str) -> int:
        return self._folder.size(name)

    def append_to(self, name: str, size: int) -> Appending:
        return FailingAppending(self, self._folder.append_to(name, size))

    def replace(self, name: str, data: bytes) -> None:
        self.use_step()
        self._folder.replace(name, data)

    def remove(self, name: str) -> None:
        self.use_step()
        self._folder.remove(name)

    def lock(self, name: str, holder: str) -> HeldLock:
        return self._folder.lock(name, holder)


class FailingAppending:
    def __init__(self, owner: FailingFolder, file: Appending) -> None:
        self._owner = owner
        self._file = file

    def append(self, data: bytes) -> None:
        try:
            self._owner.use_step()
        except Failed:
            self._file.append(data[: self._owner.torn])
            raise
        self._file.append(data)

    def sync(self) -> None:
        self._owner.use_step()
        self._file.sync()

    def close(self) -> None:
        self._file.close()
