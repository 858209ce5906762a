"""Evaluates a task's Spark expressions: by a plan that is kept, or by a job, whichever has cost
less.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from math import log2
from statistics import median
from typing import Literal

import pyarrow as pa
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from anabranch.link.reports import PlanReport
from anabranch.spark.inside import from_arrow_schema
from anabranch.spark.kept.physical import Unfit
from anabranch.spark.kept.plan import Build, KeptPlan
from anabranch.spark.memory import footprint, job_memory

KEPT, JOB = "kept", "job"
_HARDLY_A_JOB_S = 0.05
"""No job is quicker than that by much, however large the cluster: none is tried below."""
_FEW = 5
_AGAIN = 64
"""After so many instances of a size the slower way is tried again."""


class PlanChoice:
    """For each size of instance, in octaves: the way that was quicker at the median of the last
    few. A job is tried only if the kept plan goes on taking long: its first instance, in which the
    JVM loads and compiles, says nothing.
    """

    def __init__(self) -> None:
        self._seconds: dict[tuple[str, int], deque[float]] = {}
        self._last = KEPT, 0
        self._since: dict[tuple[str, int], int] = {}

    def pick(self, rows: int) -> str:
        size = _size(rows)
        kept, job = self._typical(KEPT, size), self._typical(JOB, size)
        if kept is None or kept < _HARDLY_A_JOB_S or len(self._seconds[KEPT, size]) < _FEW:
            return KEPT
        if job is None:
            return JOB
        better, other = (KEPT, JOB) if kept <= job else (JOB, KEPT)
        return other if self._since.get((other, size), 0) >= _AGAIN else better

    def add(self, way: str, rows: int, seconds: float) -> None:
        size = _size(rows)
        self._last = way, size
        self._seconds.setdefault((way, size), deque(maxlen=_FEW)).append(seconds)
        other = JOB if way == KEPT else KEPT
        self._since[(way, size)] = 0
        self._since[(other, size)] = self._since.get((other, size), 0) + 1

    @property
    def last(self) -> str:
        return self._last[0]

    def why(self) -> str:
        """The cost of both ways at the size of the last instance."""
        size = self._last[1]
        kept, job = self._typical(KEPT, size), self._typical(JOB, size)
        if kept is None and job is None:
            return "nothing to evaluate yet"
        told = [
            f"{name} {seconds * 1e3:.1f} ms"
            for name, seconds in (("kept plan", kept), ("job", job))
            if seconds is not None
        ]
        return f"{', '.join(told)} for some {2**size:,} tuples"

    def _typical(self, way: str, size: int) -> float | None:
        known = self._seconds.get((way, size))
        return median(known) if known else None


def _size(rows: int) -> int:
    return int(log2(max(rows, 1)))


Mode = Literal["auto", "kept", "job"]
NameJob = Callable[[int], None]
InSlot = Callable[[Callable[[], pa.Table]], pa.Table]


def _unnamed(rows: int) -> None:
    """Names no job, because nobody looks for it."""


def _nothing() -> None:
    """Does nothing: the caller keeps the table."""


@cache
def _warn_once(text: str) -> None:
    """Warns on standard error, where whoever started the process sees it."""
    print(f"Spark's plans are not kept: {text}. Every instance is a job.", file=sys.stderr)


def at_once(do: Callable[[], pa.Table]) -> pa.Table:
    """Runs `do` directly: the caller is in a slot already, or there are none."""
    return do()


class Expressions:
    """All that one task or source has Spark evaluate. `name_job` is called with the number of
    tuples before a job; `in_slot` does what must not run beside task instances.
    """

    def __init__(
        self,
        spark: SparkSession,
        mode: Mode = "auto",
        name_job: NameJob = _unnamed,
        in_slot: InSlot = at_once,
    ) -> None:
        self.spark = spark
        self.in_slot = in_slot
        self.mode = mode
        self.name_job = name_job
        self._evaluations: list[Evaluation] = []

    def evaluation(self, schema: pa.Schema, build: Build) -> Evaluation:
        made = Evaluation(self, schema, build)
        self._evaluations.append(made)
        return made

    def report(self) -> tuple[PlanReport, ...]:
        """How each is evaluated, and why."""
        return tuple(one.report() for one in self._evaluations)

    def planned(self) -> tuple[PlanReport, ...]:
        """The report once everything is planned."""
        for one in self._evaluations:
            one.open()
        return self.report()

    def interrupt(self) -> None:
        """Called from any thread: what kept plans are evaluating fails soon."""
        for one in self._evaluations:
            one.interrupt()

    def abandon(self) -> None:
        """Called from any thread: the evaluation fails at once."""
        for one in self._evaluations:
            one.abandon()

    def close(self) -> None:
        """Removes what is kept in the JVM. Calling it again does no harm."""
        for one in self._evaluations:
            one.close()


class Evaluation:
    """The result of `build(spark.createDataFrame(table, types)).toArrow()` for tables of one
    schema. The types are those of the schema: a time without a zone has none in Spark either.

    A query that does not fit a kept plan runs as a job, and so does every query if Spark's inside
    is not as we know it; so does an instance for which that was measured to be quicker.
    """

    def __init__(self, owner: Expressions, schema: pa.Schema, build: Build) -> None:
        self._owner = owner
        self.schema = schema
        self._build = build
        self._choice = PlanChoice()
        self._kept: KeptPlan | None = None
        self.unfit = 'plans = "job"' if owner.mode == "job" else ""
        """Why every instance is a job, if it is."""
        self.instances = {KEPT: 0, JOB: 0}

    def open(self) -> None:
        """Plan it. Idempotent."""
        if self._kept and self._kept.abandoned:
            self.close()
            self._kept = None
        if self._kept or self.unfit:
            return
        try:
            self._kept = KeptPlan(self._owner.spark, self.schema, self._build)
        except Unfit as reason:
            self.unfit = str(reason)
        except AnalysisException:
            raise
        except PySparkException as error:  # such as a pattern that is none: its job says
            self.unfit = f"planning it failed ({type(error).__name__})"
        except Py4JJavaError as error:
            self.unfit = f"planning it failed ({error.java_exception.getClass().getSimpleName()})"
        except (Py4JError, TypeError, AttributeError) as error:
            self.unfit = f"this Spark does not plan as expected ({type(error).__name__})"
            _warn_once(self.unfit)

    def __call__(self, table: pa.Table, let_go: Callable[[], None] = _nothing) -> pa.Table:
        """`let_go` is called once the JVM has all of `table`, which may then be released before the
        result is there.
        """
        self.open()
        return self._owner.in_slot(lambda: self._evaluated(table, let_go))

    def _evaluated(self, table: pa.Table, let_go: Callable[[], None]) -> pa.Table:
        rows = len(table)
        kept = self._kept
        way = JOB if kept is None else self._way(rows)
        started = time.perf_counter()
        if kept is None or way == JOB:
            given = self._job(table, rows, let_go)
        else:
            try:
                given = kept(table)
            except PySparkException as error:
                if error.getCondition():
                    raise
                given = self._job(table, rows, let_go)  # a bare error of Java's: the job explains
        footprint.look()  # the JVM has just answered
        self._choice.add(way, rows, time.perf_counter() - started)
        self.instances[way] += 1
        return given

    def report(self) -> PlanReport:
        why = self.unfit or (self._choice.why() if self._owner.mode == "auto" else 'plans = "kept"')
        way = JOB if self.unfit else self._choice.last
        return PlanReport(way, why, self.instances[KEPT], self.instances[JOB])

    def _way(self, rows: int) -> str:
        return KEPT if self._owner.mode == "kept" else self._choice.pick(rows)

    def _job(self, table: pa.Table, rows: int, let_go: Callable[[], None]) -> pa.Table:
        self._owner.name_job(rows)
        with job_memory.job(table.nbytes):
            frame = self._owner.spark.createDataFrame(table, from_arrow_schema(self.schema))
            del table
            let_go()
            return self._build(frame).toArrow()

    def interrupt(self) -> None:
        if self._kept:
            with suppress(Py4JError, OSError):
                self._kept.interrupt()

    def abandon(self) -> None:
        if self._kept:
            self._kept.abandon()

    def close(self) -> None:
        if self._kept:
            with suppress(Py4JError, OSError):
                self._kept.close()
