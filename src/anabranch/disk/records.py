"""Records in a file, each with its length and a checksum, so that a damaged one is known.

A killed process or a power cut leaves at most a broken end: that was told nobody and counts as not
written. A broken record with whole ones behind it is damage, and nothing is left out for it.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass

from anabranch.errors import CannotResume

_HEAD = re.compile(rb"([0-9a-f]{8}) ([0-9a-f]{1,8})\n")


@dataclass(frozen=True, slots=True)
class Records:
    """The payloads of the whole records, and how many bytes these take up."""

    payloads: list[bytes]
    size: int


def record(payload: bytes) -> bytes:
    """As it stands in a file: checksum and length in a line, then the payload and a line break."""
    length = b"%x" % len(payload)
    return b"%08x %s\n%s\n" % (_checksum(length, payload), length, payload)


def read_records(data: bytes, place: str) -> Records:
    """Those of a file up to its broken end, if it has one. Raises CannotResume for damage before
    that; `place` is what the file is called."""
    payloads: list[bytes] = []
    at = 0
    while at < len(data):
        found = _record_at(data, at)
        if found is None:
            _must_be_the_end(data, at, place)
            break
        payload, at = found
        payloads.append(payload)
    return Records(payloads, at)


def _record_at(data: bytes, at: int) -> tuple[bytes, int] | None:
    """The payload of the record that begins there, and where the next one does."""
    head = _HEAD.match(data, at)
    if head is None:
        return None
    start, end = head.end(), head.end() + int(head[2], 16)
    payload = data[start:end]
    if data[end : end + 1] != b"\n" or _checksum(head[2], payload) != int(head[1], 16):
        return None
    return payload, end + 1


def _must_be_the_end(data: bytes, at: int, place: str) -> None:
    for head in _HEAD.finditer(data, at + 1):
        if _record_at(data, head.start()):
            raise CannotResume(
                f"the record at byte {at} is damaged, and whole ones are behind it from byte"
                f" {head.start()} on",
                place=place,
                remedy="Restore the file, or drop what it belongs to and create it again.",
            )


def _checksum(length: bytes, payload: bytes) -> int:
    return zlib.crc32(payload, zlib.crc32(length))
