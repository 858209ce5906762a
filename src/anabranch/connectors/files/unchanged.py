"""Notices when a file changes while it is read.

A file that is cut while it is read would seem to end, and the piece of a line at the cut would pass
for a row.
"""

from __future__ import annotations

import os
import stat
from typing import BinaryIO

from anabranch.errors import CannotResume, SourceError

_REMEDY = (
    "Files are read once and whole: move a complete file into place, and let programs that write"
    " on and on use Kafka."
)


class Unchanged:
    """`start` is the byte where reading begins. The size counts only for plain files."""

    def __init__(self, data: BinaryIO, start: int) -> None:
        self._file = data.fileno()
        self._name = str(data.name)
        found = os.fstat(self._file)
        self._plain = stat.S_ISREG(found.st_mode)
        self._size = found.st_size
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
