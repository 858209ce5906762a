"""Three sites in a row: is the output whole, and does memory stay bounded as the input grows?

Each size is run by the command a user would type, in a process of its own whose memory (Python and
JVM together) is watched; the output is compared, row by row, with plain Spark on the same file.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from anabranch.errors import TaskError
from anabranch.scratch import scratch_folder

Progress = Callable[[str], None]

SCRIPT = """
CREATE STREAM readings (id BIGINT, timestamp BIGINT, temperature DOUBLE, illuminance DOUBLE,
                        x DOUBLE, y DOUBLE, z DOUBLE)
  TIMESTAMP timestamp FROM file(path = '{folder}/in.parquet', speed = 'max') AT node1;
CREATE QUERY warm AS SELECT * FROM readings WHERE temperature > 0.1 AT node2;
CREATE QUERY moved AS SELECT id, timestamp, temperature, illuminance, x + y AS xy, z FROM warm
  WHERE illuminance > 0.1 INTO parquet(path = '{folder}/out', rows_per_file = 200000) AT node3;
"""
PLAIN = """
SELECT id, timestamp, temperature, illuminance, x + y AS xy, z
FROM readings WHERE illuminance > 0.1 AND temperature > 0.1
"""
PIECE = 1_000_000


def write_input(path: Path, rows: int) -> None:
    """The standby paper's tuples, 56 bytes each, in row groups."""
    rng = np.random.default_rng(0)
    names = ("id", "timestamp", "temperature", "illuminance", "x", "y", "z")
    schema = pa.schema(
        [(name, pa.int64() if i < 2 else pa.float64()) for i, name in enumerate(names)]
    )
    with pq.ParquetWriter(path, schema) as writer:
        for first in range(0, rows, PIECE):
            count = min(PIECE, rows - first)
            numbers = np.arange(first, first + count)
            columns = [numbers, numbers * 1000, *rng.random((5, count))]
            writer.write_table(pa.table(columns, schema=schema), row_group_size=100_000)


def watched_run(folder: Path) -> dict[str, float]:
    """Seconds and peak memory of running the script to its end."""
    (folder / "chain.sql").write_text(SCRIPT.format(folder=folder))
    command = [sys.executable, "-m", "anabranch", "run", "chain.sql", "--until-idle"]
    started = time.monotonic()
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    peak = {"python": 0.0, "jvm": 0.0}
    while process.poll() is None:
        now = _memory(process.pid)
        if sum(now.values()) > sum(peak.values()):
            peak = now
        time.sleep(0.1)
    if process.returncode:
        raise TaskError(f"the run failed: {(folder / 'log').read_text().strip()}")
    return {
        "seconds": time.monotonic() - started,
        "python_mb": peak["python"],
        "jvm_mb": peak["jvm"],
        "peak_mb": sum(peak.values()),
    }


def _memory(pid: int) -> dict[str, float]:
    """At this moment; pages that two processes share, as after a fork, count once."""
    sizes = {"python": 0.0, "jvm": 0.0}
    try:
        for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
            kind = "jvm" if process.name() == "java" else "python"
            used = process.memory_full_info()
            sizes[kind] += getattr(used, "pss", used.rss) / 1e6
    except psutil.NoSuchProcess:
        return sizes
    return sizes


def differences(folder: Path, spark: SparkSession) -> int:
    """Rows in which the output differs from what plain Spark gives on the file."""
    spark.read.parquet(str(folder / "in.parquet")).createOrReplaceTempView("readings")
    spark.sql(PLAIN).write.parquet(str(folder / "plain"))
    expected = pq.read_table(folder / "plain")
    actual = pq.read_table(folder / "out")
    if len(actual) != len(expected):
        return abs(len(actual) - len(expected))
    positions = actual["_pos"].to_numpy() != np.arange(1, len(actual) + 1)
    wrong = positions | (actual["_ts"].to_numpy() != expected["timestamp"].to_numpy())
    for name in expected.column_names:
        wrong |= actual[name].to_numpy() != expected[name].to_numpy()
    return int(wrong.sum())


def run(sizes: Sequence[int], progress: Progress, spark: SparkSession) -> dict[str, Any]:
    """One row per size; `memory_ratio` is the peak of the largest over that of the smallest.
    `spark` gives the results to compare with."""
    rows = []
    for size in sizes:
        folder = scratch_folder()
        try:
            progress(f"{size:,} tuples: writing them …")
            write_input(folder / "in.parquet", size)
            progress(f"{size:,} tuples through three sites …")
            measured = watched_run(folder)
            progress(f"{size:,} tuples: comparing with plain Spark …")
            wrong = differences(folder, spark)
            rows.append({"tuples": size, "differences": wrong, **measured})
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    ratio = rows[-1]["peak_mb"] / rows[0]["peak_mb"]
    return {"rows": rows, "memory_ratio": ratio}
