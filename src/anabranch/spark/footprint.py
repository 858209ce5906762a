"""What the JVM has come to take besides its heap since it was warm.

It goes on for minutes to compile what it runs and to load classes. Nobody can tell by how much it
grows; but what it takes more, queues can take less (`site.sources.pace`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from pyspark.sql import SparkSession

_FRESH_S = 1.0


class Footprint:
    """`look` while the JVM answers, as after a job; `excess` asks nobody and never waits."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._besides_heap: Callable[[], int] | None = None
        self._warm = 0
        self._excess = 0
        self._looked = -math.inf

    def warm(self, besides_heap: Callable[[], int]) -> None:
        """A JVM is as it should be, and says from now on what it takes. Again with every JVM that
        this process starts."""
        self._besides_heap = besides_heap
        self._warm = besides_heap()
        self._excess = 0

    def look(self) -> None:
        """At most once a second: it takes a millisecond."""
        now = self._clock()
        if self._besides_heap and now - self._looked >= _FRESH_S:
            self._looked = now
            self._excess = max(0, self._besides_heap() - self._warm)

    def excess(self) -> int:
        """Bytes."""
        return self._excess


def besides_heap(spark: SparkSession) -> Callable[[], int]:
    """Bytes of compiled code and classes in the JVM of a session."""
    management = spark.sparkContext._jvm.java.lang.management  # type: ignore[union-attr]
    memory = management.ManagementFactory.getMemoryMXBean()
    return lambda: int(memory.getNonHeapMemoryUsage().getCommitted())


footprint = Footprint()
"""Of this process."""
