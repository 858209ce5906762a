"""How much memory the JVM has taken besides its heap since it was warm.

For minutes it goes on to compile what it runs and to load classes. Nobody can predict how much that
takes; but queues can take less by what it takes more (`site.sources.pace`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

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
