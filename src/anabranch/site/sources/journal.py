"""Which part of a source became which positions, so that it can be read again as the same tuples.

An entry per table read is written before its tuples are given on. Entries stand in segments, a file
each: a full segment is packed and not touched again until all of its tuples are released, and then
removed whole. So an hour of entries takes some ten bytes a partition and none of the memory.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from anabranch.disk.folder import Appending, Folder
from anabranch.disk.records import read_records, record
from anabranch.errors import CannotResume
from anabranch.site.sources.entries import JournalEntry, ReadingState, decode, encode
from anabranch.stream.batch import START_WATERMARK

SEGMENT = 2_000
"""Entries of one file."""
FORMAT = 1
_PACKED = b"z"
"""The first byte of a record that has the entries of a segment, compressed."""
_START = ReadingState(None, 1)


@dataclass
class _Segment:
    number: int
    begin: ReadingState


class Journal:
    """The segments of one stream in a folder. Several threads must not use it at once.

    A call that raises StorageError has done nothing, and can be tried again.
    """

    def __init__(self, folder: Folder, name: str, segment: int = SEGMENT) -> None:
        """Raises CannotResume if a file is damaged or missing."""
        self._folder = folder
        self._name = name
        self._limit = segment
        self._segments: list[_Segment] = []
        self._active: list[bytes] = []
        self._file: Appending | None = None
        self._size = 0
        self._doubtful = False
        """Nobody knows what of the newest file is on the disk."""
        self._released = 0, 0, _START
        self.promised = START_WATERMARK
        """The clock's watermark that was promised, rounded up."""
        self.state: ReadingState | None = None
        """Behind the newest entry; None if there is none yet."""
        self._open()

    @staticmethod
    def forget(folder: Folder, name: str) -> None:
        for file in sorted(folder.names(), reverse=True):
            if _number(file, name) is not None:
                folder.remove(file)

    # -- what is there ---------------------------------------------------------------------------

    @property
    def place(self) -> str:
        return self._folder.place(self._name)

    @property
    def last(self) -> int:
        """The last position that an entry gave."""
        return self.state.next - 1 if self.state else 0

    def lacks(self, position: int) -> bool:
        """Whether something after `position` was read and is not among the entries any more."""
        return bool(self._segments) and self._segments[0].begin.next > position + 1

    def since(self, position: int) -> Iterator[JournalEntry]:
        """The entries from the first on that gave a tuple after `position`."""
        for entry in self._since_segment(position):
            if entry.last > position:
                yield entry

    def _since_segment(self, position: int) -> Iterator[JournalEntry]:
        later = (n for n, one in enumerate(self._segments) if one.begin.next > position + 1)
        index = max(0, next(later, len(self._segments)) - 1)
        for segment in self._segments[index:]:
            payloads = (
                self._active if segment is self._segments[-1] else self._read(segment.number)[1]
            )
            yield from _entries(payloads, segment.begin)

    def needed(self, position: int) -> ReadingState:
        """The place where a reading would begin that gives all tuples after `position`, or an
        earlier one.
        """
        number, index, state = self._released
        newest = self._segments[-1]
        if number != newest.number:
            if newest.begin.next > position + 1:
                return self._segments[0].begin
            number, index, state = newest.number, 0, newest.begin
        while index < len(self._active):
            payload = self._active[index]
            after = state if _is_promise(payload) else decode(payload, state).after
            if after.next > position + 1:
                break
            index, state = index + 1, after
        self._released = number, index, state
        return state

    # -- writing ---------------------------------------------------------------------------------

    def begin(self, state: ReadingState) -> None:
        """Takes note that reading begins there, even if it ends before the first table has come."""
        self._make_room(state)

    def add(self, entry: JournalEntry) -> None:
        self._make_room(entry.before)
        self._append(encode(entry))
        self.state = entry.after

    def promise(self, floor: int, state: ReadingState) -> None:
        """Promises that no tuple below `floor` gets a position after `state`."""
        self._make_room(state)
        self._append(b"%d" % floor)
        self.promised = max(self.promised, floor)

    def sync(self) -> None:
        """Returns once what was written would survive a crash of the machine."""
        if self._doubtful:
            self._replace(*self._active)
        elif self._file:
            self._doubtful = True
            self._file.sync()
            self._doubtful = False

    def trim(self, released: int) -> None:
        """Forgets segments all of whose tuples are released."""
        while len(self._segments) > 1 and self._segments[1].begin.next <= released + 1:
            self._folder.remove(self._file_name(self._segments[0].number))
            del self._segments[0]

    def close(self) -> None:
        if self._file:
            self._file.close()
            self._file = None

    def _make_room(self, begin: ReadingState) -> None:
        """Begins a segment if there is none, or the newest is full. Wherever this ends early, the
        files hold what they held.
        """
        if self._segments and len(self._active) < self._limit:
            return
        number = 1
        if self._segments:
            number = self._segments[-1].number + 1
            self._replace(_PACKED + zlib.compress(b"\n".join(self._active)))
        head = record(_head(begin, self.promised))
        self._folder.replace(self._file_name(number), head)
        self.close()
        self._segments.append(_Segment(number, begin))
        self._active, self._size, self._doubtful = [], len(head), False
        self.state = self.state or begin

    def _append(self, payload: bytes) -> None:
        if self._doubtful:
            self._replace(*self._active)
        if self._file is None:
            name = self._file_name(self._segments[-1].number)
            self._file = self._folder.append_to(name, self._size)
        data = record(payload)
        self._file.append(data)
        self._size += len(data)
        self._active.append(payload)

    def _replace(self, *payloads: bytes) -> None:
        """Writes the newest file again, with the same entries."""
        self.close()
        newest = self._segments[-1]
        data = b"".join(map(record, [_head(newest.begin, START_WATERMARK), *payloads]))
        self._folder.replace(self._file_name(newest.number), data)
        self._size, self._doubtful = len(data), False

    # -- reading ---------------------------------------------------------------------------------

    def _open(self) -> None:
        names = self._folder.names()
        numbers = sorted(n for one in names if (n := _number(one, self._name)) is not None)
        for number, before in zip(numbers, [0, *numbers], strict=False):
            if before and number != before + 1:
                raise self._damaged(before + 1, "a part of the journal is missing")
            head, self._active, self._size = self._read(number)
            begin = ReadingState(**head["begin"])
            self._segments.append(_Segment(number, begin))
            self.promised = max(self.promised, head["promised"])
        if self._segments:
            promises = [int(one) for one in self._active if _is_promise(one)]
            self.promised = max([self.promised, *promises])
            self.state = self._segments[-1].begin
            for entry in _entries(self._active, self.state):
                self.state = entry.after

    def _read(self, number: int) -> tuple[dict[str, Any], list[bytes], int]:
        """The head of a segment, its payloads, and the size of what is whole."""
        name = self._file_name(number)
        data = self._folder.read(name) or b""
        records = read_records(data, self._folder.place(name))
        if not records.payloads:
            raise self._damaged(number, "the file has no beginning")
        head = json.loads(records.payloads[0])
        if head["format"] != FORMAT:
            raise self._damaged(number, f"its format is {head['format']}, and ours {FORMAT}")
        payloads = [one for payload in records.payloads[1:] for one in _unpacked(payload)]
        return head, payloads, records.size

    def _file_name(self, number: int) -> str:
        return f"{self._name}.{number:08d}"

    def _damaged(self, number: int, what: str) -> CannotResume:
        return CannotResume(
            what,
            place=self._folder.place(self._file_name(number)),
            remedy="Restore the folder, or drop the stream and create it again.",
        )


def _head(begin: ReadingState, promised: int) -> bytes:
    return json.dumps({"format": FORMAT, "begin": asdict(begin), "promised": promised}).encode()


def _unpacked(payload: bytes) -> list[bytes]:
    return zlib.decompress(payload[1:]).split(b"\n") if payload[:1] == _PACKED else [payload]


def _is_promise(payload: bytes) -> bool:
    return payload[:1] != b"["


def _entries(payloads: list[bytes], state: ReadingState) -> Iterator[JournalEntry]:
    for payload in payloads:
        if not _is_promise(payload):
            entry = decode(payload, state)
            state = entry.after
            yield entry


def _number(file: str, name: str) -> int | None:
    stem, _, number = file.rpartition(".")
    return int(number) if stem == name and number.isdigit() else None
