"""What a hop costs: gate → inlet → task → outlet → gate, against the bare Spark job in it.

Both run the same selection on the same Arrow batches, in turn, in one Spark, so that whatever the
machine does meanwhile happens to both.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from anabranch.config.cluster import Cluster
from anabranch.link.gate import Credentials, Gate
from anabranch.link.outlet import LiveOutlet
from anabranch.link.peer import Peer
from anabranch.link.wire import BORN, EVENT_TIME, record_batches, wire_schema
from anabranch.plan.expressions import Expr, quoted
from anabranch.plan.operators import Column, Condition, Item, Projection, Selection
from anabranch.plan.tasks import Input, TaskSpec
from anabranch.site.site import Site
from anabranch.site.spark import arrow_schema, scratch_folder, start_session, warm_up
from anabranch.site.task import WIRE_ROWS
from anabranch.stream.restart import point_of

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

    def __init__(self, spark: SparkSession) -> None:
        credentials = Credentials("bench")
        cluster = Cluster.of_sites(["edge", "hop"])
        schema = wire_schema(arrow_schema(COLUMNS))
        self.source = LiveOutlet("readings", schema, limit=cluster.queue_bytes, heartbeat_s=0.25)
        self.source.attach("hop")
        outlets = {"readings": self.source}
        self._edge = Gate("127.0.0.1:0", credentials, {"acks": self._acks}, outlets.__getitem__)
        self._site = Site("hop", cluster, credentials, spark)
        self._peer = Peer("hop", self._site.address, credentials)
        self._peer.call("peers", peers={"edge": self._edge.address})
        self._peer.call("prepare", sources=[], tasks=[self._task().model_dump()])
        self._peer.call("attach", stream="warm", consumer="bench")
        self._peer.call("start", tasks={"hop": {"inputs": [0]}})
        self._results = self._peer.follow("warm", "bench", after=0, epoch=0)
        self._batches = iter(self._results)

    @staticmethod
    def _task() -> TaskSpec:
        return TaskSpec(
            name="hop", query="hop", site="hop", output="warm", columns=COLUMNS,
            inputs=(Input(stream="readings", site="edge", alias="readings", columns=COLUMNS),),
            operators=(
                Selection(condition=Condition(expr=Expr(pieces=(CONDITION,)))),
                Projection(items=tuple(
                    Item(expr=Expr.of("readings", one.name), name=one.name, type=one.type)
                    for one in COLUMNS
                )),
            ),
        )  # fmt: skip

    def _acks(self, body: dict[str, Any]) -> list[str]:
        """As a site's gate takes them: no consumer has been superseded."""
        for ack in body["acks"]:
            point = point_of(ack["point"])
            self.source.level1("hop", point.inputs[0], point)
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
        last = self.source.last
        ack = {"stream": "warm", "consumer": "bench", "epoch": 0, "received": last,
               "index": 0, "point": {"inputs": [last], "output": last}}  # fmt: skip
        self._peer.call("acks", acks=[ack])

    def close(self) -> None:
        self._results.cancel()
        self.source.close()
        self._site.close()
        self._edge.shutdown()
        self._peer.close()


def bare_seconds(spark: SparkSession, table: pa.Table) -> float:
    """The job alone: Arrow in, Arrow out."""
    started = time.perf_counter()
    frame = spark.createDataFrame(table).where(CONDITION)
    frame.selectExpr(*map(quoted, NAMES), EVENT_TIME, BORN).toArrow()
    return time.perf_counter() - started


def measure(
    spark: SparkSession, hop: Hop, rows: int, rounds: int, progress: Progress
) -> tuple[float, float]:
    """Median seconds of (bare job, hop) over `rounds` of each, taken in turn."""
    table = tuples(rows)
    bare, whole = [], []
    for number in range(rounds):
        progress(f"{rows:,} tuples a batch: round {number + 1} of {rounds} …")
        bare.append(bare_seconds(spark, table))
        whole.append(hop.seconds(table))
    return median(bare), median(whole)


def run(progress: Progress, *, rounds: int = 200, bulk_rounds: int = 15) -> dict[str, Any]:
    """`latency_ratio` at 1 000 tuples a batch, `throughput_ratio` at 1 M tuples."""
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
    def warming(text: str) -> None:
        progress(f"Warming up: {text}")

    hop = Hop(spark)
    try:
        measure(spark, hop, 1_000, max(1, rounds // 2), warming)
        small_bare, small_hop = measure(spark, hop, 1_000, rounds, progress)
        measure(spark, hop, 1_000_000, min(3, bulk_rounds), warming)
        bulk_bare, bulk_hop = measure(spark, hop, 1_000_000, bulk_rounds, progress)
    finally:
        hop.close()
    return {
        "bare_ms": small_bare * 1e3,
        "hop_ms": small_hop * 1e3,
        "latency_ratio": small_hop / small_bare,
        "bare_tuples_per_s": 1e6 / bulk_bare,
        "hop_tuples_per_s": 1e6 / bulk_hop,
        "throughput_ratio": bulk_bare / bulk_hop,
    }
