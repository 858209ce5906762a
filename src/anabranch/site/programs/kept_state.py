"""What a pocket remembers, kept in its site's state folder by the position of its input."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Mapping
from typing import Any

from anabranch.disk.folder import Folder
from anabranch.disk.records import read_records, record
from anabranch.errors import CannotResume
from anabranch.spark.inside import CloudPickler

_STATE = ".state"


class KeptState:
    """One file for each of some input positions: the state after all tuples up to there.

    `needed` tells the position of the restart point that is on the disk. What was kept for an
    earlier one is deleted, since nobody restarts there any more. All raise StorageError."""

    def __init__(self, folder: Folder, needed: Callable[[], int]) -> None:
        self._folder = folder
        self._needed = needed

    def forget(self) -> None:
        self._delete(lambda position: True)

    def save(self, position: int, state: bytes) -> None:
        """It is on the disk once this returns."""
        self._folder.replace(f"{position}{_STATE}", record(state))
        needed = self._needed()
        self._delete(lambda kept: kept < needed)

    def load(self, position: int) -> bytes | None:
        """None if it is not there whole."""
        name = f"{position}{_STATE}"
        try:
            found = read_records(self._folder.read(name) or b"", self._folder.place(name)).payloads
        except CannotResume:
            return None
        return found[0] if found else None

    def cut(self, position: int) -> None:
        """Whoever goes on at `position` may reach other states than were kept for later ones."""
        self._delete(lambda kept: kept > position)

    def _delete(self, which: Callable[[int], bool]) -> None:
        for name in self._folder.names():
            if name.endswith(_STATE) and which(int(name.removesuffix(_STATE))):
                self._folder.remove(name)


class _Pickler(CloudPickler):
    def __init__(self, file: io.BytesIO, own: Mapping[str, Any]) -> None:
        super().__init__(file)  # type: ignore[no-untyped-call]
        self._own = own

    def persistent_id(self, obj: Any) -> str | None:
        """A class of the pocket's own module goes by its name: its next run loads that module
        again, and asks with `isinstance` for what it finds there."""
        name = getattr(obj, "__qualname__", "") if isinstance(obj, type) else ""
        return name if name and self._own.get(name) is obj else None


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, own: Mapping[str, Any]) -> None:
        super().__init__(io.BytesIO(data))
        self._own = own

    def persistent_load(self, name: str) -> Any:
        return self._own[name]


def packed(state: object, own: Mapping[str, Any]) -> bytes:
    """`own` are the names of the pocket's module. Raises what pickling raises."""
    buffer = io.BytesIO()
    _Pickler(buffer, own).dump(state)  # type: ignore[no-untyped-call]
    return buffer.getvalue()


def unpacked(data: bytes, own: Mapping[str, Any]) -> Any:
    return _Unpickler(data, own).load()
