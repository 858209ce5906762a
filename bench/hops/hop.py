"""What a hop costs: gate → inlet → task → outlet → gate, against a bare Spark job.

With kept plans and with a job per instance; all run the same selection on the same Arrow batches,
in turn, in one Spark, so that whatever the machine does meanwhile happens to all.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from anabranch.config.cluster import ClusterConfig, SiteConfig
from anabranch.link.gate import LOCAL, Credentials, Gate
from anabranch.link.messages import (
    Ack,
    Acks,
    Addresses,
    Attach,
    Begin,
    Follow,
    Ping,
    Pong,
    Prepare,
    Start,
)
from anabranch.link.outlet import LiveOutlet
from anabranch.link.peer import Peer
from anabranch.link.wire import BORN, EVENT_TIME, ArrowBatches, record_batches, wire_schema
from anabranch.plan.expressions import Expr, quoted
from anabranch.plan.operators import Column, Condition, Item, Projection, Selection
from anabranch.plan.tasks import TaskInput, TaskSpec
from anabranch.runtime.loop import process_loop
from anabranch.scratch import scratch_folder
from anabranch.site.site import Site
from anabranch.site.tasks.task import WIRE_ROWS
from anabranch.spark.own import warm_up
from anabranch.spark.session import arrow_schema, start_session
from anabranch.stream.restart import RestartPoint
from bench.systems.processes import cpu_s

COLUMNS = (
    Column(name="id", type="bigint"),
    Column(name="timestamp", type="bigint"),
    *(Column(name=name, type="double") for name in ("temperature", "illuminance", "x", "y", "z")),
)
"""The standby paper's tuple: 56 bytes."""
CONDITION = "temperature > 0"
NAMES = [column.name for column in COLUMNS]

Progress = Callable[[str], None]


def tuples(rows: int) -> pa.Table:
    """All of them pass the selection, as in the paper's experiments."""
    now = np.full(rows, time.time_ns() // 1000)
    values = [np.arange(rows), np.arange(rows), *np.random.default_rng(0).random((5, rows)) + 0.1]
    return pa.table([*values, now, now], schema=wire_schema(arrow_schema(COLUMNS)))


class Hop:
    """A producer's gate, a site with one selection, and a consumer behind it; all on loopback."""

    def __init__(self, spark: SparkSession, plans: Literal["kept", "job"] = "kept") -> None:
        credentials = Credentials("bench")
        sites = {"edge": SiteConfig(name="edge"), "hop": SiteConfig(name="hop", plans=plans)}
        cluster = ClusterConfig(sites=sites)
        schema = wire_schema(arrow_schema(COLUMNS))
        self.source = LiveOutlet(
            process_loop(),
            "readings",
            ArrowBatches(schema),
            limit=cluster.queue_bytes,
            heartbeat_s=0.25,
        )
        self.source.attach("hop")
        outlets = {"readings": self.source}
        answers = {Acks: self._acks, Ping: lambda asked: Pong(os.getpid())}
        self.edge = Gate("127.0.0.1:0", credentials, answers, outlets.__getitem__)
        LOCAL.pop(self.edge.address)  # as if it were in another process
        self._site = Site("hop", cluster, credentials, spark)
        self._peer = Peer("hop", self._site.address, credentials)
        self._peer.send(Addresses({"edge": self.edge.address}))
        self._peer.send(Prepare((), (self._task(),)))
        self._peer.send(Attach("warm", "bench"))
        self._peer.send(Start({"hop": Begin(RestartPoint((0,), 0))}))
        self._results = self._peer.open(Follow("warm", "bench", after=0))
        self._batches = iter(self._results)

    @staticmethod
    def _task() -> TaskSpec:
        return TaskSpec(
            name="hop",
            query="hop",
            site="hop",
            output="warm",
            columns=COLUMNS,
            inputs=(TaskInput(stream="readings", site="edge", alias="readings", columns=COLUMNS),),
            operators=(
                Selection(condition=Condition(expr=Expr(pieces=(CONDITION,)))),
                Projection(
                    items=tuple(
                        Item(expr=Expr.of("readings", one.name), name=one.name, type=one.type)
                        for one in COLUMNS
                    )
                ),
            ),
        )

    def _acks(self, asked: Acks) -> list[tuple[str, int]]:
        """As a site's gate takes them: no consumer has been superseded."""
        for ack in asked.acks:
            self.source.level1("hop", ack.point.inputs[0], ack.point)
        return []

    def seconds(self, table: pa.Table) -> float:
        """From handing the tuples to the producer's outlet until the last result has arrived."""
        started = time.perf_counter()
        self.source.append(record_batches(table, WIRE_ROWS), 0)
        missing = len(table)
        while missing:
            missing -= next(self._batches).rows
        elapsed = time.perf_counter() - started
        self._acknowledge()
        return elapsed

    def _acknowledge(self) -> None:
        """The bench is a consumer too: without its acks the site would keep everything."""
        self._peer.send(Acks((Ack.of_reader("warm", "bench", self.source.last),)))

    def close(self) -> None:
        self._results.cancel()
        self.source.close()
        self._site.close()
        self.edge.shutdown()
        self._peer.close()


def bare_seconds(spark: SparkSession, table: pa.Table) -> float:
    """The job alone: Arrow in, Arrow out."""
    started = time.perf_counter()
    frame = spark.createDataFrame(table).where(CONDITION)
    frame.selectExpr(*map(quoted, NAMES), EVENT_TIME, BORN).toArrow()
    return time.perf_counter() - started


Ways = dict[str, Callable[[pa.Table], float]]
"""What is measured: each gives the seconds of one instance."""


def measure(ways: Ways, rows: int, rounds: int, progress: Progress) -> dict[str, dict[str, float]]:
    """Median milliseconds and mean CPU milliseconds of each way at `rows` tuples an instance. They
    take turns, some instances each; the first turn does not count."""
    table = tuples(rows)
    taken: dict[str, list[float]] = {name: [] for name in ways}
    used = dict.fromkeys(ways, 0.0)
    each = min(10, rounds)
    turns = rounds // each
    for turn in range(turns + 1):
        progress(f"{rows:,} tuples an instance: turn {turn} of {turns} …")
        for name, way in ways.items():
            before = cpu_s(os.getpid())
            seconds = [way(table) for _ in range(each)]
            if turn:
                taken[name] += seconds
                used[name] += cpu_s(os.getpid()) - before
    return {
        name: {"ms": median(taken[name]) * 1e3, "cpu_ms": used[name] / len(taken[name]) * 1e3}
        for name in ways
    }


def run(progress: Progress, *, rounds: int = 200, bulk_rounds: int = 15) -> dict[str, Any]:
    """Per size of instance what each way takes. `latency_ratio` and `cpu_ratio`: a hop with kept
    plans over the bare job at 1 000 tuples; `throughput_ratio` at 1 M tuples."""
    scratch = scratch_folder()
    progress("Starting Spark …")
    spark = start_session("local[2]", {"spark.driver.memory": "2g"}, "bench", scratch)
    try:
        warm_up(spark)
        return compare(spark, progress, rounds=rounds, bulk_rounds=bulk_rounds)
    finally:
        spark.stop()
        shutil.rmtree(scratch, ignore_errors=True)


def compare(
    spark: SparkSession, progress: Progress, *, rounds: int, bulk_rounds: int
) -> dict[str, Any]:
    hops = {plans: Hop(spark, plans) for plans in ("kept", "job")}
    ways: Ways = {name: hop.seconds for name, hop in hops.items()}
    ways["bare"] = partial(bare_seconds, spark)
    times = {1: rounds, 1_000: rounds, 100_000: bulk_rounds * 2, 1_000_000: bulk_rounds}
    try:
        rows = {size: measure(ways, size, number, progress) for size, number in times.items()}
    finally:
        for hop in hops.values():
            hop.close()
    small, large = rows[1_000], rows[1_000_000]
    return {
        "rows": [{"tuples": size, **took} for size, took in rows.items()],
        "latency_ratio": small["kept"]["ms"] / small["bare"]["ms"],
        "cpu_ratio": small["kept"]["cpu_ms"] / small["bare"]["cpu_ms"],
        "throughput_ratio": large["bare"]["ms"] / large["kept"]["ms"],
    }
