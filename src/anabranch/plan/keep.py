"""KEEP: how much of a stream is there for those who come later; and what of it they ask for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from anabranch.plan.spec import Spec
from anabranch.units import exact_duration, show_bytes


class LogPart(NamedTuple):
    """The extent of a log: its last position, its bytes, and the greatest event time up to
    there.
    """

    last: int
    size: int
    newest: int


class Keep(Spec):
    """Tuples whose event time is more than `us` old, and those beyond `bytes` of the log, may go
    once no reader needs them. At least one of the limits is given.
    """

    us: int | None = None
    bytes: int | None = None

    def __str__(self) -> str:
        parts = [exact_duration(self.us)] if self.us is not None else []
        return " ".join([*parts, *([show_bytes(self.bytes)] if self.bytes is not None else [])])

    def past(self, parts: Sequence[LogPart], size: int, newest: int) -> int:
        """The last position that may go; 0 if none may. `parts` are those of a log that go whole,
        the oldest first, without the one that is still written to; `size` and `newest` are the
        bytes and the greatest event time of all."""
        position = 0
        for part in parts:
            too_old = self.us is not None and part.newest < newest - self.us
            too_much = self.bytes is not None and size > self.bytes
            if not (too_old or too_much):
                break
            position, size = part.last, size - part.size
        return position


class Past(Spec):
    """Begins with the first tuple of an event time of `since_us` or later, or with the first whose
    event time is at most `back_us` before the newest; without either, with the first of all.
    """

    since_us: int | None = None
    back_us: int | None = None
    text: str = ""
    """As it was written."""

    def __str__(self) -> str:
        return self.text


def show_time(us: int) -> str:
    """An event time as SINCE takes it."""
    return f"{datetime.fromtimestamp(us / 1e6, UTC):%Y-%m-%d %H:%M:%S.%f}".rstrip("0").rstrip(".")
