"""An equi-join of two streams in windows: ours against Spark's own stream–stream join.

Latency: both get the same rate of live tuples, and what is timed is from a tuple's birth until the
result that it completes is out. Sustainable rate: both read the same files as fast as they can.
Keys are such that every tuple has one match, whatever the window, so that windows differ in what
they hold alone.
"""

from __future__ import annotations

import shutil
import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from anabranch.config.cluster import ClusterConfig
from anabranch.scratch import scratch_folder
from bench.systems.system import System

Progress = Callable[[str], None]
WINDOWS_S = (10, 100)
PER_S = 1_000
"""Live tuples a second of each stream."""
EVENT_PER_S = 2_000
"""Tuples per second of event time in the files."""
FILE_ROWS = 50_000
WARM_UP_S = 8.0
JOIN = """
CREATE QUERY joined AS SELECT L.k, L.v, R.v AS w FROM L[{window}s], R[{window}s]
  WHERE L.k = R.k AT here;
"""


def run(
    spark: SparkSession, progress: Progress, seconds: float = 20.0, rows: int = 500_000
) -> dict[str, Any]:
    """The result with its three ratios."""
    folder = scratch_folder()
    try:
        progress("Writing the input …")
        for name in "lr":
            _write(folder / name, rows)
        live = [_live(spark, window, seconds, progress) for window in WINDOWS_S]
        progress(f"Ours, {rows:,} tuples of each stream from files …")
        ours = [min(_ours_from_files(spark, folder, w) for _ in range(2)) for w in WINDOWS_S]
        progress("Spark, the same files …")
        sparks = _spark_from_files(spark, folder, WINDOWS_S[0])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {
        "tuples": rows,
        "live_tuples_per_s": PER_S,
        "rows": [
            {
                "window_s": window,
                "ours_ms": mine,
                "spark_ms": theirs,
                "ratio": mine / theirs,
                "ours_tuples_per_s": speed,
            }
            for window, (mine, theirs), speed in zip(
                WINDOWS_S, live, [2 * rows / took for took in ours], strict=True
            )
        ],
        "spark_tuples_per_s": sparks,
        "latency_ratio": max(mine / theirs for mine, theirs in live),
        "rate_ratio": 2 * rows / ours[0] / sparks,
        "window_cost_ratio": ours[1] / ours[0],
    }


def _write(folder: Path, rows: int) -> None:
    folder.mkdir()
    rng = np.random.default_rng(1)
    for first in range(0, rows, FILE_ROWS):
        keys = np.arange(first, min(rows, first + FILE_ROWS))
        ts = pa.array(keys * (1_000_000 // EVENT_PER_S)).cast(pa.timestamp("us", "UTC"))
        columns = [keys, rng.random(len(keys)), ts]
        path = folder / f"{first // FILE_ROWS:05}.parquet"
        pq.write_table(pa.table(columns, names=["k", "v", "ts"]), path)


# -- live ------------------------------------------------------------------------------------------


def _live(
    spark: SparkSession, window: int, seconds: float, progress: Progress
) -> tuple[float, float]:
    """Median latencies in ms: ours, Spark's."""
    progress(f"Ours, {PER_S:,} live tuples a second, windows of {window} s …")
    ours = _ours_live(spark, window, seconds)
    progress(f"Spark, {PER_S:,} live tuples a second, windows of {window} s …")
    return ours, _spark_live(spark, window, seconds)


def _ours_live(spark: SparkSession, window: int, seconds: float) -> float:
    streams = "".join(
        f"CREATE STREAM {name} (k BIGINT, v DOUBLE)"
        f" FROM rate(tps = {PER_S}, k = 'value', v = 'value * 0.5D') AT here;\n"
        for name in "LR"
    )
    with closing(System(ClusterConfig.of_sites(["here"]), spark)) as system:
        results = system.start(streams + JOIN.format(window=window), "joined")
        return median(results.latencies_ms(WARM_UP_S, seconds))


def _spark_live(spark: SparkSession, window: int, seconds: float) -> float:
    latencies: list[float] = []
    begin = time.monotonic() + WARM_UP_S

    def take(batch: DataFrame, _: int) -> None:
        born = batch.select("born").toArrow().column("born").to_numpy()
        if len(born) and time.monotonic() >= begin:
            now_us = time.time_ns() // 1000
            latencies.extend(((now_us - born) / 1000).tolist())

    scratch = scratch_folder()
    with _Feed() as feed:
        left, right = (_socket(spark, port) for port in feed.ports)
        query = (
            _joined(left, right, window)
            .select(F.greatest("lborn", "rborn").alias("born"), "lv", "rv")
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(scratch))
            .start()
        )
        try:
            query.awaitTermination(int(WARM_UP_S + seconds))
        finally:
            query.stop()
            shutil.rmtree(scratch, ignore_errors=True)
    return median(latencies)


def _socket(spark: SparkSession, port: int) -> DataFrame:
    lines = spark.readStream.format("socket").option("host", "127.0.0.1").option("port", port)
    parts = F.split("value", ",")
    born = parts[1].cast("long")
    return lines.load().select(
        parts[0].cast("long").alias("k"),
        parts[2].cast("double").alias("v"),
        born.alias("born"),
        F.timestamp_micros(born).alias("ts"),
    )


class _Feed:
    """Two sockets that give the same keys at the same time, `PER_S` a second each."""

    def __init__(self) -> None:
        self._servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        self.ports = [server.getsockname()[1] for server in self._servers]
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> _Feed:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stopped.set()
        self._thread.join(timeout=5)
        for server in self._servers:
            server.close()

    def _run(self) -> None:
        clients = [server.accept()[0] for server in self._servers]
        key, started = 0, time.monotonic()
        try:
            while not self._stopped.wait(0.01):
                upto = int((time.monotonic() - started) * PER_S)
                born = time.time_ns() // 1000
                text = "".join(f"{k},{born},{k * 0.5}\n" for k in range(key, upto)).encode()
                key = upto
                for client in clients:
                    client.sendall(text)
        except OSError:
            return
        finally:
            for client in clients:
                client.close()


# -- from files ------------------------------------------------------------------------------------


def _ours_from_files(spark: SparkSession, folder: Path, window: int) -> float:
    streams = "".join(
        f"CREATE STREAM {name} (k BIGINT, v DOUBLE) TIMESTAMP ts"
        f" FROM file(path = '{folder / name.lower()}', format = 'parquet', speed = 'max')"
        " AT here;\n"
        for name in "LR"
    )
    with closing(System(ClusterConfig.of_sites(["here"]), spark)) as system:
        return system.start(streams + JOIN.format(window=window), "joined").seconds()


def _spark_from_files(spark: SparkSession, folder: Path, window: int) -> float:
    """Tuples a second of both streams together, once it runs."""
    left, right = (
        spark.readStream.schema("k BIGINT, v DOUBLE, ts TIMESTAMP")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder / name))
        .withColumn("born", F.lit(0))
        for name in "lr"
    )
    scratch = scratch_folder()
    ends: list[float] = []

    def take(batch: DataFrame, _: int) -> None:
        if batch.toArrow().num_rows:
            ends.append(time.monotonic())

    query = (
        _joined(left, right, window)
        .select("lk", "lv", "rv")
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", str(scratch))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return 2 * FILE_ROWS * (len(ends) - 1) / (ends[-1] - ends[0])


def _joined(left: DataFrame, right: DataFrame, window: int) -> DataFrame:
    """Spark's join of what is less than `window` seconds apart."""
    a, b = (
        side.withWatermark("ts", "1 second").select(
            *(F.col(name).alias(f"{prefix}{name}") for name in side.columns)
        )
        for side, prefix in ((left, "l"), (right, "r"))
    )
    near = f"lts > rts - INTERVAL {window} SECONDS AND rts > lts - INTERVAL {window} SECONDS"
    return a.join(b, F.expr(f"lk = rk AND {near}"))
