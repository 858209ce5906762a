"""Sliding windows against tumbling ones: does the work per tuple grow with width/slide?

The same tuples, the same slide and so about as many results; only the windows are `OVERLAP` times
as wide.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from anabranch.config.cluster import ClusterConfig
from anabranch.scratch import scratch_folder
from bench.systems.system import System

Progress = Callable[[str], None]
OVERLAP = 60
ROUNDS = 3
SCRIPT = """
CREATE STREAM readings (key INT, v DOUBLE) TIMESTAMP ts
  FROM file(path = '{path}', speed = 'max') AT here;
CREATE QUERY sums AS SELECT key, SUM(v) AS s, AVG(v) AS a, MAX(v) AS m, COUNT(*) AS n
  FROM readings[{width}s SLIDE 1s] GROUP BY key NO STAGE AT here;
"""


def run(
    spark: SparkSession, progress: Progress, rows: int = 1_000_000, keys: int = 100
) -> dict[str, Any]:
    """Seconds for both, and their ratio."""
    folder = scratch_folder()
    try:
        progress("Writing the input …")
        _write(folder / "in.parquet", rows, keys)
        seconds: dict[int, list[float]] = {1: [], OVERLAP: []}
        for number in range(ROUNDS):
            for overlap, took in seconds.items():
                progress(f"Round {number + 1} of {ROUNDS}, width/slide = {overlap} …")
                took.append(_seconds(spark, folder / "in.parquet", overlap))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    best = {overlap: min(took) for overlap, took in seconds.items()}
    return {
        "tuples": rows,
        "keys": keys,
        "rows": [
            {"overlap": overlap, "seconds": took, "us_per_tuple": took / rows * 1e6}
            for overlap, took in best.items()
        ],
        "cost_ratio": best[OVERLAP] / best[1],
    }


def _write(path: Path, rows: int, keys: int) -> None:
    """Of about a minute of event time."""
    rng = np.random.default_rng(2)
    ts = pa.array(np.arange(rows) * 60_000_000 // rows).cast(pa.timestamp("us", "UTC"))
    columns = [pa.array(rng.integers(0, keys, rows), pa.int32()), rng.random(rows), ts]
    table = pa.table(columns, names=["key", "v", "ts"])
    pq.write_table(table, path, row_group_size=100_000)


def _seconds(spark: SparkSession, path: Path, width: int) -> float:
    with closing(System(ClusterConfig.of_sites(["here"]), spark)) as system:
        return system.start(SCRIPT.format(path=path, width=width), "sums").seconds()
