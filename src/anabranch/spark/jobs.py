"""The Spark jobs of one task: named after it, and cancelled when it stops."""

from __future__ import annotations

from contextlib import suppress
from typing import Protocol
from uuid import uuid4

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession


class Jobs(Protocol):
    def begin(self, description: str) -> None:
        """Notes that an instance of the task begins on this thread."""

    def cancel(self) -> None:
        """Cancels the task's jobs; may be called from any thread. Running jobs fail, and so do
        those that still begin.
        """


class SparkJobs:
    """The jobs as a job group. A later task of the same name has another group.

    With `per_instance` every instance runs jobs. Otherwise the code that runs a job names it,
    because naming takes longer than many an instance.
    """

    def __init__(self, spark: SparkSession, task: str, *, per_instance: bool) -> None:
        self._context = spark.sparkContext
        self._group = f"{task} {uuid4().hex[:8]}"
        self._per_instance = per_instance

    def begin(self, description: str) -> None:
        if self._per_instance:
            self.name(description)

    def name(self, description: str) -> None:
        """Marks all that this thread has Spark do from now on as the task's."""
        self._context.setJobGroup(self._group, description, interruptOnCancel=True)

    def cancel(self) -> None:
        with suppress(Py4JError, OSError):  # the JVM has ended, and its jobs with it
            self._context._jsc.sc().cancelJobGroupAndFutureJobs(self._group)
