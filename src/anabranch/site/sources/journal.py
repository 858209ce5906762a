"""Which part of a source became which positions, so that it can be read again as the same tuples.

One line per table read, written before its tuples are given on. Only the process may die, not the
machine under it: what the operating system has, it keeps.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from io import FileIO
from pathlib import Path
from typing import Any

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
    """Entries in order. A half line at the end, left by a killed process, counts as not written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.entries = _read(path)
        self._file: FileIO | None = None
        self._since_trim = 0

    def add(self, entry: Entry) -> None:
        self.entries.append(entry)
        if self._file is None:
            self._file = self._rewritten()
        self._file.write(_line(entry))

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

    def _rewritten(self) -> FileIO:
        """The file, with the entries but for the newest, and nothing else."""
        temporary = self._path.with_suffix(".new")
        temporary.write_bytes(b"".join(_line(entry) for entry in self.entries[:-1]))
        os.replace(temporary, self._path)
        return self._path.open("ab", buffering=0)


def _line(entry: Entry) -> bytes:
    return json.dumps(asdict(entry)).encode() + b"\n"


def _read(path: Path) -> list[Entry]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    return [Entry(**json.loads(line)) for line in data.split(b"\n")[:-1]]
