"""Window aggregation in shared state against itself with a shuffle, Spark's own, Flink's, and
DuckDB alone, in one run. Every engine has the same cores and the same heap."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import SparkSession

from anabranch.errors import TaskError
from anabranch.scratch import scratch_folder
from anabranch.stream.batch import START_WATERMARK
from bench.stage import engines, flink
from bench.stage.engines import Took, spark_session
from bench.stage.input import ROWS_PER_FILE, STEP_US, Workload, stage_over
from bench.stage.restart import restart_seconds
from bench.stage.shuffled import ShuffledRun
from bench.systems.system import Progress

Row = dict[str, Any]
RIVALS = ("spark", "spark-rocksdb")
REPEATS = 3
"""Of what is compared with itself: the median counts."""
WARM = Workload("parquet", 1000, 1.0, 2)
SHORT = 0.05
"""A run that is shorter than it should be by this part is long enough."""


@dataclass(frozen=True)
class Size:
    """What is measured. Each run takes `seconds` at least; `long` files take several checkpoints.
    With fewer cores than the most of `parallelism`, only the fewest and the most keys and the most
    skew are."""

    keys: tuple[int, ...] = (100, 10_000, 1_000_000)
    skews: tuple[float, ...] = (1.2, 1.4, 1.6, 1.8, 2.0)
    files: int = 4
    long: int = 32
    seconds: float = 20.0
    parallelism: tuple[int, ...] = (2, 1)
    rows_per_file: int = ROWS_PER_FILE

    def workload(self, input: str, keys: int, zipf: float = 1.0, files: int = 0) -> Workload:
        return Workload(input, keys, zipf, files or self.files, self.rows_per_file)

    def points(self, parallelism: int) -> Iterator[Workload]:
        """Keys by inputs with uniform keys, then skew, as in the paper's figures 5 and 6."""
        whole = parallelism == max(self.parallelism)
        keys = self.keys if whole else (self.keys[0], self.keys[-1])
        for input in ("parquet", "text"):
            for count in keys:
                yield self.workload(input, count)
        for input in ("parquet", "text"):
            for zipf in self.skews if whole else self.skews[-1:]:
                yield self.workload(input, self.keys[-1], zipf)


FULL = Size()
QUICK = Size((100, 1_000_000), (2.0,), files=2, long=8, seconds=5.0, parallelism=(2,))


def run(
    progress: Progress,
    size: Size = FULL,
    session: Callable[[int, Progress], AbstractContextManager[SparkSession]] = spark_session,
) -> dict[str, Any]:
    """`session` gives a Spark of so many cores."""
    folder = scratch_folder()
    rows: list[Row] = []
    alone: Row = {}
    try:
        for parallelism in size.parallelism:
            with session(parallelism, progress) as spark:
                bench = Bench(spark, folder, parallelism, size.seconds, progress)
                for workload in size.points(parallelism):
                    rows += bench.point(workload)
                if not alone:
                    progress("checkpoints, slides and restarts")
                    alone = {
                        "checkpoint_ratio": _checkpoint_ratio(spark, folder, size),
                        "slide_ratio": _slide_ratio(spark, folder, size),
                        **_restarts(folder, size),
                    }
        told = {flink.skipped(size.workload(input, 1)) for input in ("parquet", "text")}
        return {
            "rows": rows,
            "ratios": list(_ratios(rows)),
            **alone,
            "flink": "; ".join(sorted(told - {""})),
        }
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Bench:
    """Engines on a Spark of `parallelism` cores, each for `seconds` at least."""

    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        parallelism: int,
        seconds: float,
        progress: Progress,
    ) -> None:
        self._spark = spark
        self._folder = folder
        self._parallelism = parallelism
        self._seconds = seconds
        self._progress = progress
        self._warm = WARM.write(folder)
        for engine in ("stage", "shuffled", *RIVALS):  # a first run pays for compiled code
            self._take(engine, WARM)

    def point(self, workload: Workload) -> Iterator[Row]:
        at = f"{workload.input}, {workload.keys:,} keys, skew {workload.zipf}"
        self._progress(f"{at}, {self._parallelism} cores …")
        engines_here = ["stage", "product", "shuffled", *RIVALS]
        engines_here += [] if flink.skipped(workload) else ["flink"]
        for engine in [*engines_here, "duckdb"]:
            row = self._row(engine, workload)
            self._progress(f"{engine}: {at}: {row['tuples_per_s']:,.0f} tuples/s")
            yield row

    def _row(self, engine: str, workload: Workload) -> Row:
        """A first run says how often the input must be there for one that is long enough."""
        took = self._take(engine, workload)
        if engine != "duckdb" and took.seconds < self._seconds * (1 - SHORT):
            passes = math.ceil(self._seconds / took.seconds)
            workload = replace(workload, passes=passes)
            took = self._take(engine, workload)
            shutil.rmtree(workload.write(self._folder))
        return {
            "engine": engine,
            "input": workload.input,
            "keys": workload.keys,
            "zipf": workload.zipf,
            "parallelism": self._parallelism,
            "tuples": workload.rows,
            "tuples_per_s": workload.rows / took.seconds,
            "cpu_s_per_million": took.cpu_s / workload.rows * 1e6,
            "groups": took.groups,
            "state_bytes": took.state_bytes,
            "seconds": took.seconds,
            "parts": took.parts,
        }

    def _take(self, engine: str, workload: Workload) -> Took:
        files = workload.write(self._folder)
        match engine:
            case "stage":
                return self._checked(
                    engines.stage(self._spark, workload, files, self._warm), workload, files
                )
            case "shuffled":
                took = engines.stage(self._spark, workload, files, self._warm, kind=ShuffledRun)
                return self._checked(took, workload, files)
            case "product":
                return self._checked(engines.product(self._spark, files), workload, files)
            case "flink":
                return flink.flink(workload, files, self._warm_of(workload), self._parallelism)
            case "duckdb":
                return engines.duckdb_alone(workload, files, self._parallelism)
            case _:
                return engines.spark_own(self._spark, workload, files, engine)

    def _warm_of(self, workload: Workload) -> Path:
        return replace(WARM, input=workload.input).write(self._folder)

    def _checked(self, took: Took, workload: Workload, files: Path) -> Took:
        """A wrong result has no throughput."""
        right = engines.duckdb_alone(workload, files)
        if (took.groups, took.total) != (right.groups, right.total):
            raise TaskError(f"the results are wrong: {took} instead of {right}")
        return took


def _ratios(rows: list[Row]) -> Iterator[Row]:
    """Ours against each rival at the same point."""
    point = ("input", "keys", "zipf", "parallelism")
    ours = {tuple(row[p] for p in point): row for row in rows if row["engine"] == "stage"}
    for row in rows:
        here = tuple(row[p] for p in point)
        if row["engine"] != "stage" and here in ours:
            ratio = ours[here]["tuples_per_s"] / row["tuples_per_s"]
            yield {"against": row["engine"], **{p: row[p] for p in point}, "ratio": ratio}


def _checkpoint_ratio(spark: SparkSession, folder: Path, size: Size) -> float:
    """Throughput with a checkpoint every second over that with none."""
    workload = size.workload("parquet", size.keys[-1], files=size.long)
    files, small = workload.write(folder), WARM.write(folder)
    found: dict[float, list[float]] = {1.0: [], 1e9: []}
    for _ in range(REPEATS):
        for checkpoint_s, speeds in found.items():
            took = engines.stage(spark, workload, files, small, checkpoint_s=checkpoint_s)
            speeds.append(workload.rows / took.seconds)
    return median(found[1.0]) / median(found[1e9])


def _slide_ratio(spark: SparkSession, folder: Path, size: Size) -> float:
    """Time per tuple with width/slide = 60 over that with 1."""
    workload = size.workload("parquet", size.keys[0])
    files = workload.write(folder)
    slide = workload.rows * STEP_US // 120
    width = 60 * slide
    seconds: dict[int, list[float]] = {1: [], 60: []}
    for _ in range(REPEATS):
        for overlap, took in seconds.items():
            made = stage_over(files, width, width // overlap)
            with engines.stage_run(spark, made, 1.0) as (run, _):
                begun = time.monotonic()
                for _ in run.windows(START_WATERMARK):
                    pass
                took.append(time.monotonic() - begun)
    return median(seconds[60]) / median(seconds[1])


def _restarts(folder: Path, size: Size) -> Row:
    """Spark's time over ours, of a process that is killed with the most keys in its state."""
    workload = size.workload("parquet", size.keys[-1])
    files = workload.write(folder)
    seconds = {one: restart_seconds(one, files) for one in ("stage", "spark")}
    for one in ("stage", "spark"):
        seconds[f"{one}, spare"] = restart_seconds(one, files, spare=True)
    return {
        "restart_ratio": seconds["spark"] / seconds["stage"],
        "spare_restart_ratio": seconds["spark"] / seconds["stage, spare"],
        "restart_s": seconds,
    }
