"""How much memory this process and its JVM have come to take, and how much of it is too much.

A JVM grows for minutes after its start, with the code it compiles and with its heap for moments.
Nobody can tell by how much; but what it takes more, queues can take less (`link.budget`).
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import psutil

from anabranch.site.jvm import jvm

_FRESH_S = 0.1
_HALF_LIFE_S = 600.0


class Footprint:
    """Once it is `warm`: what a warm process had taken and its whole heap is all it should take."""

    def __init__(
        self, taken: Callable[[], int], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._taken = taken
        self._clock = clock
        self._due = 0
        self._excess = 0.0
        self._looked = -math.inf
        self._lock = threading.Lock()

    def warm(self, heap_bytes: int) -> None:
        """`heap_bytes`: how large the heap may become. Much of it is touched already, and that much
        is left for what is on its way. Again with every JVM that this process starts."""
        with self._lock:
            self._due = self._taken() + heap_bytes
            self._excess = 0.0

    def excess(self) -> int:
        """The most bytes that were taken beyond that; half of it is forgotten in ten minutes. It
        does not fall with what is taken now: whoever makes room because of it would swing to and
        fro."""
        with self._lock:
            now = self._clock()
            if self._due and now - self._looked >= _FRESH_S:
                remembered = self._excess * 0.5 ** ((now - self._looked) / _HALF_LIFE_S)
                self._excess = max(remembered, self._taken() - self._due)
                self._looked = now
            return int(self._excess)


def taken_by(*pids: int) -> int:
    """Bytes of memory. Pages of files do not count: they are shared, and can be had again."""
    return sum(_anonymous(pid) for pid in pids)


def _anonymous(pid: int) -> int:
    with suppress(psutil.Error):  # it has ended
        used = psutil.Process(pid).memory_info()
        return int(used.rss - getattr(used, "shared", 0))
    return 0


def _taken() -> int:
    return taken_by(os.getpid(), *([jvm.pid] if jvm.pid else []))


footprint = Footprint(_taken)
"""Of this process."""
