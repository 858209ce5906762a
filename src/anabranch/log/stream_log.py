"""The entries of one stream in a folder, in segments that are written once and removed whole."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from anabranch.disk.folder import Appending, Folder
from anabranch.disk.records import read_records, record
from anabranch.errors import CannotResume
from anabranch.log.entry import Entry, from_bytes, to_bytes
from anabranch.stream.watermark import START_WATERMARK

SEGMENT_BYTES = 4_000_000
"""A segment that has grown so large is closed, and the next one begins."""
ANEW = "anew"
"""A note of a segment before which nothing counts."""
_REMEDY = "Restore the folder, or drop the stream and create it again."


@dataclass(slots=True)
class Segment:
    """A file. Its name and its first entry say where the stream stands, even if nothing follows."""

    name: str
    first: int
    last: int
    size: int
    anew: bool = False
    """What lies before it does not count any more, and is about to go."""


def _pattern(name: str) -> re.Pattern[str]:
    """Of the names of its files."""
    return re.compile(rf"{re.escape(name)}\.(\d{{20}})\.log")


def remove_log(folder: Folder, name: str) -> None:
    """Of a stream that begins anew, because a person said so. The newest first: what is left if
    that is interrupted would not pass for whole."""
    for file in sorted(filter(_pattern(name).fullmatch, folder.names()), reverse=True):
        folder.remove(file)


class StreamLog:
    """Holds every tuple after `begin` up to `last`, each once and in order.

    What `append` was given is safe from the death of the process when it returns, and from that of
    the machine once `sync` has. One thread at a time; calls may wait for the disk. A StorageError
    leaves the log as it was before the call.
    """

    def __init__(
        self,
        folder: Folder,
        name: str,
        learn: Callable[[Entry], None] = lambda entry: None,
        notes: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        """Raises CannotResume for a log that is damaged or lacks something between what it has.

        `learn` is told of the entries that are there, in order. What it has made of those that go
        must be in `notes`, with which each segment begins."""
        self._folder = folder
        self._learn = learn
        self._notes = notes
        self._pattern = _pattern(name)
        self._name = name
        self._file: Appending | None = None
        self._newest: Entry | None = None
        self._segments = self._found()

    @property
    def begin(self) -> int:
        """The position after which nothing is missing."""
        return self._segments[0].first - 1 if self._segments else 0

    @property
    def last(self) -> int:
        return self._segments[-1].last if self._segments else 0

    @property
    def newest(self) -> Entry | None:
        """The entry written last; its watermark and notes hold at the end of the log."""
        return self._newest

    @property
    def place(self) -> str:
        """How messages call it."""
        return self._folder.place(self._name)

    @property
    def bytes(self) -> int:
        return sum(one.size for one in self._segments)

    def append(self, entry: Entry) -> None:
        """Add the tuples after `last`."""
        if self._segments and entry.first != self.last + 1:
            raise AssertionError(f"{self._name}: {entry.first} does not follow {self.last}")
        if not self._segments or self._segments[-1].size >= SEGMENT_BYTES:
            self._begin_segment(entry.first)
        segment = self._segments[-1]
        data = record(to_bytes(entry))
        self._appending(segment).append(data)
        segment.size += len(data)
        segment.last = entry.last
        self._newest = entry

    def sync(self) -> None:
        if self._segments:
            self._appending(self._segments[-1]).sync()

    def read(self, after: int) -> Iterator[Entry]:
        """All entries with tuples after this position, the first of which may begin before it; and
        those without rows among them. Raises CannotResume if there is no such position here."""
        if not self.begin <= after <= self.last:
            raise CannotResume(
                f"the log has positions {self.begin + 1} to {self.last}, so it cannot be read"
                f" after {after}",
                place=self.place,
                remedy=_REMEDY,
            )
        for segment in list(self._segments):
            if segment.last > after:
                yield from (one for one in self._entries(segment) if one.last > after)

    def release(self, position: int) -> None:
        """Nobody reads anything up to `position` any more: segments without anything else go, but
        for the newest, which knows where the stream stands."""
        while len(self._segments) > 1 and self._segments[0].last <= position:
            self._folder.remove(self._segments[0].name)
            del self._segments[0]

    def begin_after(self, position: int) -> None:
        """Hold nothing of what came before: somebody else wrote it."""
        old = list(self._segments)
        self._begin_segment(position + 1, anew=True)
        self._segments = self._segments[-1:]
        for segment in old:
            if segment.name != self._segments[0].name:
                self._folder.remove(segment.name)

    def close(self) -> None:
        """Idempotent; the log may be used again."""
        if self._file:
            self._file.close()
            self._file = None

    # -- segments --------------------------------------------------------------------------------

    def _begin_segment(self, first: int, *, anew: bool = False) -> None:
        """With the promise that holds, and the notes, in case the segments before it go."""
        name = f"{self._name}.{first:020}.log"
        watermark = self._newest.watermark if self._newest else START_WATERMARK
        notes = {**self._notes(), **({ANEW: True} if anew else {})}
        data = record(to_bytes(Entry(first, 0, watermark, notes=notes)))
        self.sync()
        self._folder.replace(name, data)
        self.close()
        if self._segments and self._segments[-1].name == name:  # it had promises only
            self._segments.pop()
        self._segments.append(Segment(name, first, first - 1, len(data), anew))

    def _appending(self, segment: Segment) -> Appending:
        if self._file is None:
            self._file = self._folder.append_to(segment.name, segment.size)
        return self._file

    def _found(self) -> list[Segment]:
        """Those in the folder, the oldest first. Only the newest may have a torn end: each is
        begun when the one before it is whole."""
        found: list[Segment] = []
        for name in sorted(filter(self._pattern.fullmatch, self._folder.names())):
            match = self._pattern.fullmatch(name)
            assert match
            first = int(match[1])
            segment = self._measured(name, first)
            if segment.anew:
                found.clear()
            if found and found[-1].last != first - 1:
                raise CannotResume(
                    f"the log has positions up to {found[-1].last} and again from {first} on",
                    place=self._folder.place(name),
                    remedy=_REMEDY,
                )
            found.append(segment)
        return found

    def _measured(self, name: str, first: int) -> Segment:
        data = self._folder.read(name) or b""
        records = read_records(data, self._folder.place(name))
        last, anew = first - 1, False
        for payload in records.payloads:
            entry = self._newest = from_bytes(payload)
            anew = anew or ANEW in entry.notes
            self._must_follow(name, entry, last)
            self._learn(entry)
            last = entry.last
        return Segment(name, first, last, records.size, anew)

    def _must_follow(self, name: str, entry: Entry, last: int) -> None:
        if entry.first != last + 1:
            raise CannotResume(
                f"position {entry.first} comes after {last}",
                place=self._folder.place(name),
                remedy=_REMEDY,
            )

    def _entries(self, segment: Segment) -> Iterator[Entry]:
        data = (self._folder.read(segment.name) or b"")[: segment.size]
        records = read_records(data, self._folder.place(segment.name))
        if records.size < segment.size:
            raise CannotResume(
                f"the log ends at byte {records.size} of {segment.size}",
                place=self._folder.place(segment.name),
                remedy=_REMEDY,
            )
        yield from map(from_bytes, records.payloads)
