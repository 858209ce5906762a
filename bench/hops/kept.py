"""Kept queries against jobs, and the universal operator that is made of them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from anabranch.changes.change import changes
from anabranch.changes.universal import KeyedInput, Universal
from anabranch.spark.kept.query import KeptQuery
from bench.systems.processes import cpu_s

SCHEMA = pa.schema([("k", pa.int64()), ("g", pa.string()), ("n", pa.int64()), ("x", pa.float64())])
ROWS = (10, 1_000)
ROWS_PER_KEY = 5
CHANGES = 1_000
QUERIES = {
    "selection": "SELECT k, n * 2 AS m, x + 1 AS y FROM a WHERE n % 3 <> 0",
    "GROUP BY": "SELECT k, sum(n) AS s, count(*) AS c FROM a GROUP BY k",
    "LEFT JOIN": "SELECT a.k, a.n, b.n AS m FROM a LEFT JOIN b ON a.k = b.k",
    "TOP 3": """SELECT k, n FROM (
        SELECT *, row_number() OVER (PARTITION BY k ORDER BY x, n) AS r FROM a) WHERE r <= 3""",
    "DISTINCT": "SELECT DISTINCT k, g FROM a",
}
Progress = Callable[[str], None]
Tables = Mapping[str, pa.Table]


def table(seed: int, rows: int, keys: int) -> pa.Table:
    dice = np.random.default_rng(seed)
    key = dice.integers(0, keys, rows)
    names = pa.array([f"g{i}" for i in range(10)]).take(pa.array(key % 10))
    columns = [pa.array(key), names, pa.array(np.arange(rows)), pa.array(dice.random(rows))]
    return pa.table(columns, schema=SCHEMA)


def inputs(sql: str) -> list[str]:
    return ["a", "b"] if " b ON" in sql else ["a"]


def run(spark: SparkSession, progress: Progress, rounds: int, keys: int) -> dict[str, Any]:
    """Milliseconds of an evaluation and changes per second, by query."""
    result: dict[str, Any] = {"load": os.getloadavg()[0], "evaluations": [], "changes": []}
    for name, sql in QUERIES.items():
        progress(f"{name} …")
        given = dict.fromkeys(inputs(sql), SCHEMA)
        kept = KeptQuery(spark, given, sql)
        for rows in ROWS:
            tables = {one: table(i, rows, max(1, rows // 10)) for i, one in enumerate(given)}
            measured = _evaluations(spark, kept, sql, tables, rounds)
            result["evaluations"].append({"query": name, "rows": rows, **measured})
        if name != "selection":
            operator = Universal({one: KeyedInput(SCHEMA, ("k",)) for one in given}, kept.evaluate)
            measured = _changes(operator, list(given), max(5, rounds // 4), keys)
            result["changes"].append({"query": name, "keys": keys, **measured})
        kept.close()
    return result


def _evaluations(
    spark: SparkSession, kept: KeptQuery, sql: str, tables: Tables, rounds: int
) -> dict[str, float]:
    for name, one in tables.items():
        spark.createDataFrame(one).createOrReplaceTempView(name)
    ways: dict[str, tuple[Callable[[], pa.Table], int]] = {
        "kept": (lambda: kept.evaluate(tables), rounds),
        "job": (lambda: spark.sql(sql).toArrow(), max(3, rounds // 20)),
    }
    found: dict[str, float] = {}
    for name, (way, times) in ways.items():
        for _ in range(times):
            way()
        seconds, cpu = _timed(way, times)
        found |= {
            name: median(seconds) * 1e3,
            f"{name}_least": min(seconds) * 1e3,
            f"{name}_cpu": cpu * 1e3,
        }
    return found


def _timed(do: Callable[[], object], times: int) -> tuple[list[float], float]:
    """The seconds of each time, and the CPU seconds of one at the mean, JVM's and ours."""
    taken = []
    before = cpu_s(os.getpid())
    for _ in range(times):
        begun = time.perf_counter()
        do()
        taken.append(time.perf_counter() - begun)
    return taken, (cpu_s(os.getpid()) - before) / times


def _changes(operator: Universal, names: list[str], batches: int, keys: int) -> dict[str, float]:
    """Half of the changes of the first input are insertions, and half delete its oldest rows. The
    other one has a row for each key."""
    rows = keys * ROWS_PER_KEY
    more = CHANGES // 2
    whole = table(1, rows + 2 * batches * more, keys)
    operator.begin()
    full = {name: whole.slice(0, rows) if name == "a" else table(2, keys, keys) for name in names}
    operator.step({name: changes(one.slice(0, 0), one) for name, one in full.items()})
    steps = iter(range(2 * batches))

    def step() -> None:
        at = next(steps) * more
        operator.step({"a": changes(whole.slice(at, more), whole.slice(rows + at, more))})

    for _ in range(batches):
        step()
    taken, cpu = _timed(step, batches)
    return {
        "ms": median(taken) * 1e3,
        "per_s": CHANGES / median(taken),
        "best_per_s": CHANGES / min(taken),
        "cpu_ms": cpu * 1e3,
    }
