"""What a log holds: entries in files, in order, found by position without reading all before
them.
"""

from __future__ import annotations

import json
import struct
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from anabranch.disk.folder import Folder
from anabranch.disk.records import records_from
from anabranch.errors import CannotResume
from anabranch.stream.restart import START_WATERMARK

_HEAD = struct.Struct("<qqqqI")


@dataclass(frozen=True, slots=True)
class Entry:
    """`rows` tuples from position `first` on; only the writer of `body` can read it. After them
    `watermark` holds. Without rows it keeps a promise about the watermark alone.
    """

    first: int
    rows: int
    watermark: int
    body: bytes | memoryview = b""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """What else the writer must know to go on from here."""
    newest: int = START_WATERMARK
    """The greatest event time among its tuples."""

    @property
    def last(self) -> int:
        """The last position; `first` - 1 if there are no rows."""
        return self.first + self.rows - 1


def to_bytes(entry: Entry) -> bytes:
    notes = json.dumps(dict(entry.notes)).encode() if entry.notes else b""
    head = _HEAD.pack(entry.first, entry.rows, entry.watermark, entry.newest, len(notes))
    return b"".join((head, notes, entry.body))


def from_bytes(data: bytes | memoryview) -> Entry:
    first, rows, watermark, newest, length = _HEAD.unpack_from(data)
    start = _HEAD.size + length
    notes = json.loads(bytes(data[_HEAD.size : start])) if length else {}
    return Entry(first, rows, watermark, data[start:], notes, newest)


MARK_BYTES = 64_000
"""So far apart are the places of a file that are known by position: what is read in vain."""
PIECE_BYTES = 1_000_000
"""What is read of a file at a time."""
REMEDY = "Restore the folder, or drop the stream and create it again."


class Segment:
    """Its name and its first entry say where the stream stands, even if nothing follows.

    One thread may append while others read: these see the entries that existed when they began.
    """

    def __init__(self, name: str, first: int, size: int, before: int, *, anew: bool) -> None:
        """`size` is that of its first entry, which has no tuples; `before` is the greatest event
        time of all that came before it. With `anew`, what lies before it does not count any more.
        """
        self.name = name
        self.first = first
        self.before = before
        self.anew = anew
        self._end = first - 1, size
        self._marks = [(first - 1, 0)]
        """Positions and where in the file one finds what follows them; both rise."""

    @property
    def last(self) -> int:
        return self._end[0]

    @property
    def size(self) -> int:
        return self._end[1]

    def grow_to(self, last: int, size: int) -> None:
        """Takes note of its new last position and size."""
        self._mark(*self._end)
        self._end = last, size

    def _mark(self, after: int, at: int) -> None:
        if at >= self._marks[-1][1] + MARK_BYTES:
            self._marks.append((after, at))

    def entries(self, folder: Folder, after: int = 0) -> Iterator[Entry]:
        """The entries with tuples after this position, and those without tuples that follow one of
        them, but not the first of all, which is about the segment.

        Raises CannotResume where they are damaged or do not lead to its last position.
        """
        last, end = self._end
        position, at = self._marks[max(0, bisect_right(self._marks, (after, end)) - 1)]
        for start, payload in records_from(folder, self.name, at, end, PIECE_BYTES):
            self._mark(position, start)
            entry = from_bytes(payload)
            if entry.first != position + 1:
                raise self._damaged(folder, f"position {entry.first} comes after {position}")
            position = entry.last
            if start and position > after:
                yield entry
        if position != last:
            raise self._damaged(folder, f"it ends with position {position} instead of {last}")

    def _damaged(self, folder: Folder, what: str) -> CannotResume:
        return CannotResume(what, place=folder.place(self.name), remedy=REMEDY)
