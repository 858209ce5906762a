"""A journal's entry for each table that was read, and its short form in the file. Pure.

An entry is written as the difference to the one before it: cursors of a hundred partitions that
have each gone on by a few records are a hundred small numbers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from anabranch.stream.batch import START_WATERMARK

Cursor = Any


@dataclass(frozen=True)
class ReadingState:
    """The state of a reading between two tables: where it is in its source, the position of its
    next tuple, the newest event time that it has seen; and for the table before, the clock's
    watermark that it was judged by and the time when it came.
    """

    cursor: Cursor
    next: int
    newest: int = START_WATERMARK
    floor: int = START_WATERMARK
    now_us: int = 0


@dataclass(frozen=True)
class JournalEntry:
    """A table of `rows` rows, recognised by their `checksum` (0: not checked). `count` tuples of it
    got positions; `allowed` is how many the load shedder let pass, if there is one.
    """

    before: ReadingState
    after: ReadingState
    rows: int
    checksum: int = 0
    allowed: int | None = None

    @property
    def first(self) -> int:
        return self.before.next

    @property
    def count(self) -> int:
        return self.after.next - self.before.next

    @property
    def last(self) -> int:
        """Its last position; that of an earlier entry if all its tuples were late."""
        return self.after.next - 1


def encode(entry: JournalEntry) -> bytes:
    before, after = entry.before, entry.after
    fields = [
        entry.count,
        entry.rows,
        entry.checksum,
        after.newest - before.newest,
        after.floor - before.floor,
        after.now_us - before.now_us,
        entry.allowed,
        _step(before.cursor, after.cursor),
    ]
    return json.dumps(fields, separators=(",", ":")).encode()


def decode(payload: bytes, before: ReadingState) -> JournalEntry:
    """The entry that `encode` wrote, with this state before it."""
    count, rows, checksum, newest, floor, now_us, allowed, step = json.loads(payload)
    after = ReadingState(
        _after(before.cursor, step),
        before.next + count,
        before.newest + newest,
        before.floor + floor,
        before.now_us + now_us,
    )
    return JournalEntry(before, after, rows, checksum, allowed)


def _step(before: Cursor, after: Cursor) -> Any:
    """How a cursor has moved: a list of differences if it holds whole numbers under names that
    stay, else the names that changed, else all of it.
    """
    if not (isinstance(before, dict) and isinstance(after, dict)) or before.keys() - after.keys():
        return {"=": after}
    if before.keys() == after.keys() and all(map(_whole, [*before.values(), *after.values()])):
        return [after[name] - value for name, value in before.items()]
    changed = {
        name: value for name, value in after.items() if name not in before or before[name] != value
    }
    return {"+": changed}


def _after(before: Cursor, step: Any) -> Cursor:
    if isinstance(step, list):
        return {
            name: value + more for (name, value), more in zip(before.items(), step, strict=True)
        }
    return before | step["+"] if "+" in step else step["="]


def _whole(value: Any) -> bool:
    return type(value) is int
