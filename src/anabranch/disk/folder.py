"""What those who keep something may do with a disk, and nothing else.

Whoever keeps state is given a `Folder` and calls nothing of the operating system, so that a
simulation can give a disk that forgets, tears and is full. All calls block and are short. What
goes wrong is a StorageError, and then nothing has changed, but as `Appending.sync` says.
"""

from __future__ import annotations

from typing import Protocol


class Appending(Protocol):
    """The end of a file, for one thread at a time."""

    def append(self, data: bytes) -> None:
        """All of `data` is in the file, or nothing of it counts: what a failed call has left is
        taken away before the next. A killed process may leave its beginning; a machine that loses
        its power may leave nothing, or any part of what was not synced."""

    def sync(self) -> None:
        """What was appended stays, whatever happens to the machine. After an error nobody knows
        what of it does: the file must be replaced."""

    def close(self) -> None:
        """Idempotent."""


class HeldLock(Protocol):
    """A lock. It ends with the process, however that ends."""

    def close(self) -> None:
        """Idempotent."""


class Folder(Protocol):
    """Files by name, without folders in it."""

    def place(self, name: str) -> str:
        """How messages call a file."""

    def names(self) -> list[str]:
        """The files that are there."""

    def read(self, name: str) -> bytes | None:
        """The whole file; None if there is none."""

    def read_at(self, name: str, offset: int, size: int) -> bytes:
        """So many bytes of the file from there on; fewer if it ends before, none if there is no
        such file."""

    def size(self, name: str) -> int:
        """0 if there is no such file."""

    def append_to(self, name: str, size: int) -> Appending:
        """Go on behind the first `size` bytes of a file, which is made if it is not there: what
        lies behind them is cut off."""

    def replace(self, name: str, data: bytes) -> None:
        """The file holds `data` from now on, whatever happens to the machine. Before that it holds
        what it held."""

    def remove(self, name: str) -> None:
        """Idempotent."""

    def lock(self, name: str, holder: str) -> HeldLock:
        """Hold the lock of this name, as `holder` in the messages that others get. Raises
        StorageError that says who holds it, if somebody does."""
