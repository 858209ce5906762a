"""Whether Spark's JVM answers at all. A JVM that is stopped, or collects garbage without end, has
not ended, and every caller waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

from anabranch.runtime.base import Runtime
from anabranch.runtime.troubles import end_process
from anabranch.spark.jvm import jvm
from anabranch.spark.kept.loops import MOST, abandoned

EVERY_S = 2.0
SILENT_S = 5.0
"""A pause of so many seconds is told."""


def pings(spark: SparkSession) -> Callable[[], int]:
    """A function that asks the JVM for the number of its threads that nobody waits for."""

    def ping() -> int:
        spark._jvm.System.nanoTime()  # type: ignore[union-attr]
        return abandoned.look()

    return ping


class Alive:
    """Asks every `EVERY_S`, one question at a time. The process of a single site ends if its JVM
    has been silent for `limit_s` or has too many threads that nobody waits for: nothing that the
    process could do itself cures this, and its standby goes on at once.
    """

    def __init__(
        self,
        runtime: Runtime,
        ping: Callable[[], int],
        limit_s: float,
        end: Callable[[str, BaseException], Any] = end_process,
        ends: Callable[[], bool] = lambda: jvm.ends_process,
    ) -> None:
        self._runtime = runtime
        self._ping = ping
        self._limit_s = limit_s
        self._end = end
        self._ends = ends
        self._asked = 0.0
        """Since when a question has not been answered; 0 if all have."""
        self._abandoned = 0
        self._coroutine = runtime.supervise("asking the JVM", self._run)
        self._looking = runtime.supervise("watch over the JVM", self._watch)

    def close(self) -> None:
        self._coroutine.cancel()
        self._looking.cancel()

    @property
    def silent_s(self) -> float:
        return self._runtime.now() - self._asked if self._asked else 0.0

    def problem(self) -> str:
        """The problem in words; empty if all is well."""
        if self.silent_s > SILENT_S:
            return f"Spark's JVM has not answered for {self.silent_s:.0f} s"
        return ""

    @property
    def abandoned(self) -> int:
        return self._abandoned

    async def _run(self) -> None:
        while True:
            await self._runtime.sleep(EVERY_S)
            self._asked = self._runtime.now()
            try:
                self._abandoned = await self._runtime.blocking(self._ping)
            finally:
                self._asked = 0.0

    async def _watch(self) -> None:
        silent_s = 0.0
        while True:
            await self._runtime.sleep(EVERY_S)
            # Not by the clock: while all of us stood still, nobody could have answered.
            silent_s = silent_s + EVERY_S if self.silent_s > EVERY_S else 0.0
            if (silent_s > self._limit_s or self._abandoned > MOST) and self._ends():
                self._end("Spark's JVM", TimeoutError(self.problem() or self._too_many()))

    def _too_many(self) -> str:
        return f"{self._abandoned} of its threads go on with what was stopped"
