"""What a journal tells of is read again, and is what it was."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

import pyarrow as pa

from anabranch.connectors.source import Cursor, Source
from anabranch.errors import CannotResume
from anabranch.site.sources.checksum import checksum
from anabranch.site.sources.entries import Entry

_REMEDY = (
    "Put back what was there, or drop the stream and create it again: that begins with what is"
    " there now."
)


def read_again(source: Source, entries: Iterable[Entry]) -> Iterator[tuple[pa.Table, list[Entry]]]:
    """The tables of the entries, which follow each other; several as one if the source reads in
    bulk. Raises CannotResume if one is not what it was."""
    asked: deque[Entry] = deque()
    for table, count in _in_bulk(source, iter(entries), asked):
        group = [asked.popleft() for _ in range(count)]
        _verify(table, group)
        yield table, group


def _in_bulk(
    source: Source, entries: Iterator[Entry], asked: deque[Entry]
) -> Iterator[tuple[pa.Table, int]]:
    first = next(entries, None)
    if first is None:
        return

    def ends() -> Iterator[Cursor]:
        asked.append(first)
        yield first.after.cursor
        for entry in entries:
            asked.append(entry)
            yield entry.after.cursor

    yield from source.reread_many(first.before.cursor, ends())


def _verify(table: pa.Table, entries: list[Entry]) -> None:
    rows = sum(entry.rows for entry in entries)
    if len(table) != rows:
        raise _changed(entries, f"{rows} rows", f"{len(table)}")
    start = 0
    for entry in entries:
        part = table.slice(start, entry.rows)
        start += entry.rows
        if entry.checksum and entry.checksum != (now := checksum(part)):
            raise _changed([entry], f"rows with checksum {entry.checksum:08x}", f"{now:08x}")


def _changed(entries: list[Entry], was: str, now: str) -> CannotResume:
    begin, end = entries[0].before.cursor, entries[-1].after.cursor
    return CannotResume(
        f"it cannot be read again: between {begin} and {end}, where positions from"
        f" {entries[0].first} on come from, {was} were read, and now {now}",
        remedy=_REMEDY,
    )
