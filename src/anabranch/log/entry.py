"""What a log holds, and how it stands in a file."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from anabranch.stream.watermark import START_WATERMARK

_HEAD = struct.Struct("<qqqqI")


@dataclass(frozen=True, slots=True)
class Entry:
    """`rows` tuples from position `first` on, which only who wrote `body` can read. After them
    `watermark` holds. Without rows it keeps a promise about the watermark alone."""

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
