"""Many queries at many sites of one process: how old results are when they reach their sinks."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
import psutil
from pyspark.sql import SparkSession

from anabranch.config.cluster import ClusterConfig
from bench.systems.processes import Busy
from bench.systems.system import System

Progress = Callable[[str], None]
SITES = 20
QUERIES = 5
"""That read each stream."""
WARM_UP_S = 20.0


def run(
    spark: SparkSession, progress: Progress, seconds: float = 30.0, tps: float = 2.0
) -> dict[str, Any]:
    """At `tps` tuples a second of each stream, and at ten times that."""
    rates = {"plain": tps, "tenfold": tps * 10}
    found = {name: _measured(spark, progress, seconds, rate) for name, rate in rates.items()}
    return {**found["plain"], "tenfold": found["tenfold"]}


def _measured(
    spark: SparkSession, progress: Progress, seconds: float, tps: float
) -> dict[str, Any]:
    names = [f"s{number}" for number in range(SITES)]
    progress(f"{SITES} sites, {SITES * QUERIES} queries, {tps:g} tuples/s a stream: deploying …")
    with closing(System(ClusterConfig.of_sites(names), spark)) as system:
        began = time.monotonic()
        system.execute(script(tps))
        deployed = time.monotonic() - began
        time.sleep(WARM_UP_S)
        progress(f"{tps:g} tuples/s a stream: measuring for {seconds:g} s …")
        system.forget_latencies()
        busy = Busy(os.getpid())
        time.sleep(seconds)
        ages = np.array(system.sink_latencies_ms())
        share, threads = busy.share(), psutil.Process().num_threads()
    results = len(ages)
    p50, p99 = np.percentile(ages, [50, 99]) if results else (float("nan"), float("nan"))
    return {
        "tuples_per_s": tps,
        "results": results,
        "p50_ms": float(p50),
        "p99_ms": float(p99),
        "cores": share,
        "threads": threads,
        "deploy_s": deployed,
    }


def script(tps: float) -> str:
    """Each stream is read by queries at its own site, whose sinks are at others."""
    streams = [
        f"CREATE STREAM r{i} (v DOUBLE, room STRING)"
        f" FROM rate(tps = {tps}, v = 'hash(value) % 1000 / 10.0', room = '\\'r\\'') AT s{i};"
        for i in range(SITES)
    ]
    queries = [
        f"CREATE QUERY q{i}_{j} AS SELECT v * {j + 2} AS v, upper(room) AS room FROM r{i}"
        f" WHERE v > -{1000 + j}"
        f" INTO jsonl(path = 'q{i}_{j}.jsonl') ON s{(i + j + 1) % SITES} AT s{i};"
        for i in range(SITES)
        for j in range(QUERIES)
    ]
    return "\n".join([*streams, *queries])
