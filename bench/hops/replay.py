"""How fast a file is replayed: Parquet → selection → Parquet at one site, and Spark's own stream
over the same file (`availableNow`), in turn in one Spark."""

from __future__ import annotations

import shutil
import time
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
GROUP = 500_000
ROUNDS = 2
SCRIPT = """
CREATE STREAM bids (auction BIGINT, bidder BIGINT, price BIGINT, channel STRING) TIMESTAMP ts
  FROM file(path = '{folder}/in/bids.parquet', speed = 'max') AT here;
CREATE QUERY q1 AS SELECT auction, bidder, 0.908 * price AS euro, upper(channel) AS channel
  FROM bids WHERE price > 100 INTO parquet(path = '{folder}/ours{number}') AT here;
"""
SELECTED = ("auction", "bidder", "0.908 * price AS euro", "upper(channel) AS channel")


def run(spark: SparkSession, progress: Progress, rows: int = 5_000_000) -> dict[str, Any]:
    """Tuples a second of both, and their ratio."""
    folder = scratch_folder()
    try:
        progress("Writing the input …")
        _write(folder / "in" / "bids.parquet", rows)
        took: dict[str, list[float]] = {"ours": [], "spark": []}
        for number in range(ROUNDS + 1):
            for name, way in (("ours", _ours), ("spark", _sparks)):
                progress(f"Round {number} of {ROUNDS}, {name} …")
                seconds = way(spark, folder, number)
                if number:  # the first one warms up
                    took[name].append(seconds)
        _check(folder, ROUNDS)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    ours, sparks = min(took["ours"]), min(took["spark"])
    return {
        "tuples": rows,
        "ours_tuples_per_s": rows / ours,
        "spark_tuples_per_s": rows / sparks,
        "throughput_ratio": sparks / ours,
    }


def _write(path: Path, rows: int) -> None:
    """Bids as NEXMark's, a million a minute of event time."""
    path.parent.mkdir()
    rng = np.random.default_rng(1)
    channels = pa.array(["Google", "Facebook", "Baidu", "Apple"])
    writer: pq.ParquetWriter | None = None
    for first in range(0, rows, GROUP):
        size = min(GROUP, rows - first)
        ts = pa.array(np.arange(first, first + size) * 60).cast(pa.timestamp("us", "UTC"))
        table = pa.table(
            {
                "auction": rng.integers(1000, 2000, size),
                "bidder": rng.integers(1000, 9000, size),
                "price": rng.integers(1, 10_000, size),
                "channel": channels.take(pa.array(rng.integers(0, 4, size))),
                "ts": ts,
            }
        )
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    assert writer
    writer.close()


def _ours(spark: SparkSession, folder: Path, number: int) -> float:
    with closing(System(ClusterConfig.of_sites(["here"]), spark)) as system:
        started = time.perf_counter()
        system.execute(SCRIPT.format(folder=folder, number=number))
        system.wait(None)
        return time.perf_counter() - started


def _sparks(spark: SparkSession, folder: Path, number: int) -> float:
    schema = "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, ts TIMESTAMP"
    started = time.perf_counter()
    frame = spark.readStream.schema(schema).parquet(str(folder / "in"))
    query = (
        frame.where("price > 100")
        .selectExpr(*SELECTED)
        .writeStream.format("parquet")
        .option("path", str(folder / f"spark{number}"))
        .option("checkpointLocation", str(folder / f"checkpoint{number}"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return time.perf_counter() - started


def _check(folder: Path, number: int) -> None:
    """Both wrote as many rows: else what is compared is not the same."""
    folders = [folder / f"{name}{number}" for name in ("ours", "spark")]
    counts = {sum(pq.read_metadata(f).num_rows for f in one.glob("*.parquet")) for one in folders}
    if len(counts) != 1:
        raise AssertionError(f"ours and Spark's results differ in number: {counts}")
