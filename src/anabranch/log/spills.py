"""Logs that end with their process: tuples that do not fit in memory and could be computed
again.
"""

from __future__ import annotations

import re
from itertools import count
from urllib.parse import quote

from anabranch.disk.folder import Folder
from anabranch.log.stream_log import SEGMENT_BYTES, StreamLog

_FILE = re.compile(r".*\.\d+\.spill\.\d{20}\.log")


class Spills:
    """The spills in one folder. Files that another process has left there are removed at once."""

    def __init__(self, folder: Folder, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._numbers = count(1)
        for name in filter(_FILE.fullmatch, folder.names()):
            folder.remove(name)

    def new(self, stream: str) -> StreamLog:
        """An empty log, unlike any other."""
        name = f"{quote(stream, safe='')}.{next(self._numbers)}.spill"
        return StreamLog(self._folder, name, lasting=False, segment_bytes=self._segment_bytes)
