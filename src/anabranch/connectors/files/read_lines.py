"""Lines of a file that stays as it is while it is read; none is longer than a bound.

A file that is cut while it is read would seem to end, and the piece of a line at the cut would pass
for a row.
"""

from __future__ import annotations

import os
import stat
import threading
from typing import Any, BinaryIO

from anabranch.connectors.options import Option, OptionKind
from anabranch.errors import CannotResume, ConfigError, SourceError
from anabranch.units import byte_count, show_bytes

_REMEDY = (
    "Files are read once and whole: move a complete file into place, and let programs that write"
    " on and on use Kafka."
)


class Unchanged:
    """`start` is the byte where reading begins. The size counts only for plain files."""

    def __init__(self, data: BinaryIO, start: int) -> None:
        self._file = data.fileno()
        self._name = str(data.name)
        status = os.fstat(self._file)
        self._plain = stat.S_ISREG(status.st_mode)
        self._size = status.st_size
        if self._plain and start > self._size:
            raise CannotResume(
                f"it was read up to byte {start}, and has {self._size} bytes now",
                place=self._name,
                remedy="Put back the file that was read, or drop the stream and create it again.",
            )

    def check_end(self, *, whole: bool) -> None:
        """Checks the file at its end, after a line that is `whole`. Raises SourceError if the file
        was cut since it was opened, or is being written and its last line is not there yet.
        """
        if not self._plain:
            return
        size = os.fstat(self._file).st_size
        if size < self._size:
            raise SourceError(
                f"the file had {self._size} bytes when it was opened and has {size} now: it was cut"
                " or rotated while it was read",
                place=self._name,
                remedy=_REMEDY,
            )
        if size > self._size and not whole:
            raise SourceError(
                "the file is being written, and ends in the middle of a line",
                place=self._name,
                remedy=_REMEDY,
            )


_PIECE = 1 << 20


def _size(value: Any) -> int:
    try:
        size = value if isinstance(value, int) and value is not True else byte_count(value)
    except ConfigError:
        raise ValueError from None
    if not 0 < size < 1 << 31:
        raise ValueError
    return size


MAX_LINE = Option(
    "max_line",
    OptionKind("size", "a size such as '16MB', below 2 GiB", _size),
    "the longest line, or CSV record of several lines, that is taken; longer ones are malformed",
    default=16_000_000,
)


def too_long(limit: int) -> str:
    """What is wrong with a line longer than `limit`."""
    return f"the line is longer than {show_bytes(limit)}, the bound that max_line sets"


class Lines:
    """The lines of `data` from its present place. `byte` says what has been read."""

    def __init__(
        self, data: BinaryIO, byte: int, limit: int, stopped: threading.Event, *, skip: bool
    ) -> None:
        """With `skip`, lines that are too long are passed over; otherwise reading ends at the start
        of one.
        """
        self.byte = byte
        self._unchanged = Unchanged(data, byte)
        self._data = data
        self._limit = limit
        self._stopped = stopped
        self._skip = skip

    def take(self, size: int) -> list[bytes | None]:
        """Whole lines, until they have `size` bytes or more; None stands for a line that is too
        long. The list is empty at the end of the file.
        """
        lines: list[bytes | None] = []
        start = self.byte
        while self.byte - start < size:
            line = self._data.readline(self._limit + 1)
            if not line:
                self._unchanged.check_end(whole=True)
                break
            self.byte += len(line)
            if len(line) <= self._limit:
                if not line.endswith(b"\n"):
                    self._unchanged.check_end(whole=False)
                lines.append(line)
                continue
            lines.append(None)
            if not self._skip:
                break
            if not line.endswith(b"\n"):
                self._pass_over()
        return lines

    def _pass_over(self) -> None:
        """Passes over the rest of a line."""
        while not self._stopped.is_set():
            piece = self._data.readline(_PIECE)
            self.byte += len(piece)
            if not piece or piece.endswith(b"\n"):
                return
