"""All that state-keeping code may do with a disk.

It is given a `Folder` and calls nothing of the operating system, so that a simulation can give it a
disk that forgets, tears and is full. All calls block and are short. An error is a StorageError, and
then nothing has changed, but as `Appending.sync` says.
"""

from __future__ import annotations

from typing import Protocol


class Appending(Protocol):
    """The end of a file, for one thread at a time."""

    def append(self, data: bytes) -> None:
        """Appends `data`: all of it is in the file, or nothing of it counts: the next call first
        removes what a failed call has left. A killed process may leave its beginning; a machine
        that loses its power may leave nothing, or any part of what was not synced.
        """

    def sync(self) -> None:
        """Returns once all that was appended would survive a crash of the machine. After an error
        nobody knows what would: the file must be replaced.
        """

    def close(self) -> None:
        """Closes it. Calling it again does no harm."""


class HeldLock(Protocol):
    """A lock. It ends with the process, however that ends."""

    def close(self) -> None:
        """Closes it. Calling it again does no harm."""


class Folder(Protocol):
    """Files by name, without folders in it."""

    def place(self, name: str) -> str:
        """The name of a file in messages."""

    def names(self) -> list[str]:
        """The files that are there."""

    def read(self, name: str) -> bytes | None:
        """The whole file; None if there is none."""

    def read_at(self, name: str, offset: int, size: int) -> bytes:
        """This many bytes of the file from there on; fewer if it ends before, none if there is no
        such file.
        """

    def size(self, name: str) -> int:
        """0 if there is no such file."""

    def append_to(self, name: str, size: int) -> Appending:
        """Goes on after the first `size` bytes of a file, which is made if it is not there: bytes
        after them are cut off.
        """

    def replace(self, name: str, data: bytes) -> None:
        """Replaces the file's content by `data`, whatever happens to the machine. Before that it
        holds its old content.
        """

    def remove(self, name: str) -> None:
        """Removes the file, if it exists."""

    def lock(self, name: str, holder: str) -> HeldLock:
        """Holds the lock of this name, as `holder` in the messages that others get. Raises
        StorageError that says who holds it, if somebody does.
        """
