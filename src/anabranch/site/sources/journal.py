"""Which part of a source became which positions, so that it can be read again as the same tuples.

One record per table read, written before its tuples are given on.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from anabranch.disk.folder import Appending, Folder
from anabranch.disk.records import read_records, record

TRIM_EVERY = 1000


@dataclass(frozen=True)
class Entry:
    """The table between two cursors, whose first timely tuple got position `first`. The rest is
    what decided about its tuples: the newest event time and the clock's watermark before it, and
    the moment it came."""

    first: int
    begin: Any
    end: Any
    newest: int
    floor: int
    now_us: int
    allowed: int | None = None
    """How many of the table's tuples the load shedder let pass, if there is one."""


class Journal:
    """Entries in order, in a file of a folder."""

    def __init__(self, folder: Folder, name: str) -> None:
        """Raises CannotResume if the file is damaged."""
        self._folder = folder
        self._name = name
        found = read_records(folder.read(name) or b"", folder.place(name))
        self.entries = [Entry(**json.loads(one)) for one in found.payloads]
        self._file: Appending | None = None
        self._since_trim = 0

    def add(self, entry: Entry) -> None:
        """Raises StorageError, and then the entry is not there."""
        if self._file is None:
            self._file = self._rewritten()
        self._file.append(_record(entry))
        self.entries.append(entry)

    def trim(self, released: int) -> None:
        """Forget entries all of whose tuples are behind `released`, now and then."""
        self._since_trim += 1
        if self._since_trim < TRIM_EVERY:
            return
        self._since_trim = 0
        kept = self.entries[self.index(released) :]
        if len(kept) < len(self.entries) // 2:
            self.entries = kept
            self.close()

    def lacks(self, position: int) -> bool:
        """Something behind `position` was read and is not among the entries any more."""
        return bool(self.entries) and self.entries[0].first > position + 1

    def index(self, position: int) -> int:
        """The entry that a reading must begin with to give all tuples behind `position`."""
        later = (n for n, entry in enumerate(self.entries) if entry.first > position + 1)
        return max(0, next(later, len(self.entries)) - 1)

    def close(self) -> None:
        if self._file:
            self._file.close()
            self._file = None

    def _rewritten(self) -> Appending:
        """The file, with the entries and nothing else."""
        whole = b"".join(_record(entry) for entry in self.entries)
        self._folder.replace(self._name, whole)
        return self._folder.append_to(self._name, len(whole))


def _record(entry: Entry) -> bytes:
    return record(json.dumps(asdict(entry)).encode())
