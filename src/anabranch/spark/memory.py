"""Memory of a site's process and of its JVM: what the JVM takes besides its heap, what is free
goes back, and jobs wait for room.

For minutes the JVM goes on to compile what it runs and to load classes. Nobody can predict how much
that takes; but queues can take less by what it takes more (`site.sources.pace`).
"""

from __future__ import annotations

import ctypes
import gc
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pyarrow as pa
from pyspark.sql import SparkSession

_FRESH_S = 1.0


class Footprint:
    """Call `look` while the JVM answers, as after a job; `excess` asks nobody and never waits."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._besides_heap: Callable[[], int] | None = None
        self._warm = 0
        self._excess = 0
        self._looked = -math.inf

    def warm(self, besides_heap: Callable[[], int]) -> None:
        """Takes the JVM's present memory as normal. Call it again for every JVM that this process
        starts.
        """
        self._besides_heap = besides_heap
        self._warm = besides_heap()
        self._excess = 0

    def look(self) -> None:
        """Measures at most once a second, because it takes a millisecond."""
        now = self._clock()
        if self._besides_heap and now - self._looked >= _FRESH_S:
            self._looked = now
            self._excess = max(0, self._besides_heap() - self._warm)

    def excess(self) -> int:
        """The memory in bytes that it has taken since."""
        return self._excess


def besides_heap(spark: SparkSession) -> Callable[[], int]:
    """A function that counts the bytes of compiled code and classes in a session's JVM."""
    management = spark.sparkContext._jvm.java.lang.management  # type: ignore[union-attr]
    memory = management.ManagementFactory.getMemoryMXBean()
    return lambda: int(memory.getNonHeapMemoryUsage().getCommitted())


footprint = Footprint()
"""Of this process."""


_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8  # of <malloc.h>
_LARGE_BUFFER = 256 << 10
_JVM_MALLOC = {
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_MMAP_THRESHOLD_": str(_LARGE_BUFFER),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 20),
}
_HEAP_PER_INPUT = 8
"""Heap of a job per byte of its Arrow input: the input, its rows, the result, and slack."""


def give_memory_back() -> None:
    """Let glibc return the large buffers of links to the system, instead of keeping them in one
    arena per thread; here, and in the JVM that this process starts, which has Arrow's vectors
    outside its heap. Without glibc there is nothing to do.

    A column of a batch is 512 KB: the threshold lies below, and Arrow allocates with glibc as well.
    In a chain of sites that took 130 MB less than Arrow's own allocator and 1 MB. With 64 KB a hop
    passed a tenth less on.
    """
    for variable, value in _JVM_MALLOC.items():
        os.environ.setdefault(variable, value)
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        pa.set_memory_pool(pa.system_memory_pool())
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGE_BUFFER)
        libc.mallopt(_M_ARENA_MAX, 2)


def _trim() -> None:
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


class JobMemory:
    """Keeps the jobs of all sites in this process within the one JVM heap they share.

    Jobs that would not fit beside those running wait. And py4j's objects are reference cycles, so
    the JVM keeps a finished job's data until Python's cyclic collector runs, which counts objects
    and not the megabytes that they hold: so it is called, every `collect_bytes` of input. (What
    exists after warm-up is frozen out of collections, so that one takes a millisecond.) Our pages
    that lie free between small buffers go back to the system then as well.
    """

    def __init__(self, heap_bytes: int = 512 << 20, collect_bytes: int = 16_000_000) -> None:
        self.heap_bytes = heap_bytes
        self._collect_bytes = collect_bytes
        self._running = 0
        self._finished = 0
        self._changed = threading.Condition()

    @contextmanager
    def job(self, input_bytes: int) -> Iterator[None]:
        """Surrounds a job, from reading its input to having its result; blocks until the job
        fits.
        """
        needed = input_bytes * _HEAP_PER_INPUT
        with self._changed:
            while self._running and self._running + needed > self.heap_bytes:
                self._changed.wait()
            self._running += needed
        try:
            yield
        finally:
            self._end(needed, input_bytes)
        footprint.look()  # the JVM has just answered

    def _end(self, needed: int, input_bytes: int) -> None:
        with self._changed:
            self._running -= needed
            self._finished += input_bytes
            collect = self._finished >= self._collect_bytes
            if collect:
                self._finished = 0
            self._changed.notify_all()
        if collect:
            gc.collect()
            _trim()


job_memory = JobMemory()
"""Of this process."""
