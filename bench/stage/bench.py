"""Window aggregation in shared state against Spark's own, Flink's, and DuckDB alone, in one run."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

from pyspark.sql import SparkSession

from anabranch.errors import TaskError
from anabranch.scratch import scratch_folder
from anabranch.stream.batch import START_WATERMARK
from bench.stage import engines, flink
from bench.stage.engines import Took
from bench.stage.input import ROWS_PER_FILE, STEP_US, Workload, stage_over
from bench.stage.restart import restart_seconds

Row = dict[str, Any]
RIVALS = ("spark", "spark-rocksdb")
REPEATS = 3
"""Of what is compared with itself: the median counts."""
WARM = Workload("parquet", 1000, 1.0, 2)


@dataclass(frozen=True)
class Size:
    """What is measured. With the fewest keys `runs` count, in turn: their mean; `long` files take
    several checkpoints."""

    keys: tuple[int, ...] = (100, 10_000, 1_000_000)
    skews: tuple[float, ...] = (1.2, 1.4, 1.6, 1.8, 2.0)
    files: int = 4
    long: int = 32
    runs: int = 5
    rows_per_file: int = ROWS_PER_FILE

    def workload(self, input: str, keys: int, zipf: float = 1.0, files: int = 0) -> Workload:
        return Workload(input, keys, zipf, files or self.files, self.rows_per_file)


FULL = Size()
QUICK = Size((100, 1_000_000), (2.0,), files=2, long=8, runs=1)


def workloads(size: Size) -> Iterator[Workload]:
    """Keys by inputs with uniform keys, then skew, as in the paper's figures 5 and 6."""
    for input in ("parquet", "text"):
        for keys in size.keys:
            yield size.workload(input, keys)
    for input in ("parquet", "text"):
        for zipf in size.skews:
            yield size.workload(input, size.keys[-1], zipf)


def run(spark: SparkSession, progress: Any, size: Size = FULL) -> dict[str, Any]:
    folder = scratch_folder()
    try:
        small = WARM.write(folder)
        for engine in ("stage", *RIVALS):  # a first run pays for compiled code
            _take(spark, engine, WARM, small, small)
        rows: list[Row] = []
        told: dict[str, None] = {}
        for workload in workloads(size):
            engines_here = ["stage", *RIVALS, "duckdb"]
            if why := flink.skipped(workload):
                told.setdefault(why)
            else:
                engines_here.insert(3, "flink")
            at = f"{workload.input}, {workload.keys:,} keys, skew {workload.zipf}"
            progress(f"{at} …")
            runs = size.runs if workload.keys == size.keys[0] else 1
            for row in _measured(spark, engines_here, workload, folder, runs):
                rows.append(row)
                progress(f"{row['engine']}: {at}: {row['tuples_per_s']:,.0f} tuples/s")
        progress("checkpoints, slides and restarts")
        return {
            "rows": rows,
            "ratios": list(_ratios(rows)),
            "checkpoint_ratio": _checkpoint_ratio(spark, folder, size),
            "slide_ratio": _slide_ratio(spark, folder, size),
            **_restarts(folder, size),
            "flink": "; ".join(told),
        }
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measured(
    spark: SparkSession, engines_here: list[str], workload: Workload, folder: Path, runs: int
) -> Iterator[Row]:
    files, small = workload.write(folder), WARM.write(folder)
    took: dict[str, list[Took]] = {engine: [] for engine in engines_here}
    for number in range(runs):
        for engine, found in took.items():
            if number == 0 or engine != "flink":  # which takes a minute to start
                found.append(_take(spark, engine, workload, files, small))
    for engine, found in took.items():
        yield {
            "engine": engine,
            "input": workload.input,
            "keys": workload.keys,
            "zipf": workload.zipf,
            "tuples_per_s": mean(workload.rows / one.seconds for one in found),
            "cpu_s_per_million": mean(one.cpu_s for one in found) / workload.rows * 1e6,
            "runs": len(found),
            "groups": found[-1].groups,
            "state_bytes": found[-1].state_bytes,
            "seconds": found[-1].seconds,
            "parts": found[-1].parts,
        }


def _take(spark: SparkSession, engine: str, workload: Workload, files: Path, small: Path) -> Took:
    if engine == "stage":
        return _checked(engines.stage(spark, workload, files, small), workload, files)
    if engine == "flink":
        return flink.flink(workload, files)
    if engine == "duckdb":
        return engines.duckdb_alone(workload, files)
    return engines.spark_own(spark, workload, files, engine)


def _checked(took: Took, workload: Workload, files: Path) -> Took:
    """A wrong result has no throughput."""
    right = engines.duckdb_alone(workload, files)
    if (took.groups, took.total) != (right.groups, right.total):
        raise TaskError(f"the stage's results are wrong: {took} instead of {right}")
    return took


def _ratios(rows: list[Row]) -> Iterator[Row]:
    """Ours against each rival at the same point."""
    point = ("input", "keys", "zipf")
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
