"""Records in a file, each with its length and a checksum, so that a damaged one is known.

A killed process or a power cut leaves at most a broken end: nobody was told of it, and it counts as
not written. A broken record with whole ones after it is damage, and nothing is left out because of
it.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from anabranch.disk.folder import Folder
from anabranch.errors import CannotResume

_HEAD = re.compile(rb"([0-9a-f]{8}) ([0-9a-f]{1,8})\n")


@dataclass(frozen=True, slots=True)
class Records:
    """The payloads of the whole records, and where in the file each of these ends."""

    payloads: list[bytes]
    ends: list[int]

    @property
    def size(self) -> int:
        """The number of bytes that they take up."""
        return self.ends[-1] if self.ends else 0


class _Record(NamedTuple):
    """Where its payload starts and ends, and where the next record begins."""

    start: int
    end: int
    next: int


def record(payload: bytes) -> bytes:
    """The record as it stands in a file: checksum and length in a line, then the payload and a line
    break.
    """
    length = b"%x" % len(payload)
    return b"%08x %s\n%s\n" % (_checksum(length, payload), length, payload)


def read_records(data: bytes, place: str) -> Records:
    """The records of a file up to its broken end, if it has one. Raises CannotResume for damage
    before that; `place` is the file's name in messages.
    """
    records = Records([], [])
    while records.size < len(data):
        record = _record_at(data, records.size)
        if record is None:
            _must_be_the_end(data, records.size, place)
            break
        records.payloads.append(data[record.start : record.end])
        records.ends.append(record.next)
    return records


def spared_records(data: bytes) -> tuple[list[bytes], int | None]:
    """The payloads of all whole records of a file that was begun by one, and where the first is
    that is damaged; None if none is. For records of which each holds by itself."""
    payloads: list[bytes] = []
    damaged: int | None = None
    at = 0
    while at < len(data):
        if record := _record_at(data, at):
            payloads.append(data[record.start : record.end])
            at = record.next
            continue
        behind = _next_record(data, at)
        if damaged is None and (behind is not None or not payloads):
            damaged = at
        at = len(data) if behind is None else behind
    return payloads, damaged


def records_from(
    folder: Folder, name: str, at: int, end: int, piece: int
) -> Iterator[tuple[int, memoryview]]:
    """The records of a file between the bytes `at` and `end`, between which all are whole, each
    with its start. Reads `piece` bytes at a time, or a record. Raises CannotResume if one is not
    whole.
    """
    while at < end:
        data = folder.read_at(name, at, min(piece, end - at))
        if not _record_at(data, 0):
            data = folder.read_at(name, at, min(_length(data), end - at))
        done = 0
        while record := _record_at(data, done):
            yield at + done, memoryview(data)[record.start : record.end]
            done = record.next
        if not done:
            raise CannotResume(
                f"the record at byte {at} is damaged or cut off",
                place=folder.place(name),
                remedy="Restore the file, or drop what it belongs to and create it again.",
            )
        at += done


def _length(data: bytes) -> int:
    """The length of the record at the start of `data`, which may be cut off; 0 if there is none."""
    head = _HEAD.match(data)
    return head.end() + int(head[2], 16) + 1 if head else 0


def _record_at(data: bytes, at: int) -> _Record | None:
    """The record that begins there, if it is whole."""
    head = _HEAD.match(data, at)
    if head is None:
        return None
    start, end = head.end(), head.end() + int(head[2], 16)
    payload = memoryview(data)[start:end]
    if data[end : end + 1] != b"\n" or _checksum(head[2], payload) != int(head[1], 16):
        return None
    return _Record(start, end, end + 1)


def _must_be_the_end(data: bytes, at: int, place: str) -> None:
    behind = _next_record(data, at)
    if behind is not None:
        raise CannotResume(
            f"the record at byte {at} is damaged, and whole ones are behind it from byte"
            f" {behind} on",
            place=place,
            remedy="Restore the file, or drop what it belongs to and create it again.",
        )


def _next_record(data: bytes, at: int) -> int | None:
    """Where after `at` the next whole one begins."""
    heads = (head.start() for head in _HEAD.finditer(data, at + 1))
    return next((one for one in heads if _record_at(data, one)), None)


def _checksum(length: bytes, payload: bytes | memoryview) -> int:
    return zlib.crc32(payload, zlib.crc32(length))
