"""The engines that `bench stage` compares: each computes sum(value) by key of the same files."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import duckdb
import psutil
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from anabranch.config.cluster import SiteConfig
from anabranch.config.model import ClusterConfig
from anabranch.errors import TaskError
from anabranch.plan.stage import Stage
from anabranch.scratch import scratch_folder
from anabranch.spark.own import OwnSpark
from anabranch.stage.messages import WriteCheckpoint
from anabranch.stage.run import StageRun, cores
from anabranch.stream.batch import START_WATERMARK
from bench.stage.input import LONG_US, Workload, stage_over
from bench.systems.system import Progress, System

HEAP = "4g"
"""Of each engine's JVM. The stage's state lies in a process beside it, which takes 2 GB at most."""
MASTER = "local[{}]"
OPTIONS = f"-XX:+UseG1GC -Xms{HEAP} -XX:MinHeapFreeRatio=40 -XX:MaxHeapFreeRatio=70"
"""What a server's JVM has by default; sites have theirs give memory back."""
_STATE = "org.apache.spark.sql.execution.streaming.state."
STORES = {
    "spark": "HDFSBackedStateStoreProvider",
    "spark-rocksdb": "RocksDBStateStoreProvider",
}
FILES_PER_BATCH = 2
"""Of Spark's micro-batches: as many as there are cores here."""
QUERY = """
CREATE STREAM r (key BIGINT, value BIGINT) FROM file(path = '{folder}') TIMESTAMP ts
  LATENESS 1d AT here;
CREATE QUERY sums AS SELECT key, sum(value) AS s FROM r[{day}d] GROUP BY key
  STAGE INTO parquet(path = 'sums');
"""
SCHEMA = "ts BIGINT, key BIGINT, value BIGINT"


@dataclass(frozen=True)
class Took:
    seconds: float
    cpu_s: float
    groups: int
    total: int
    """The sum of all sums: that nobody has lost anything."""
    state_bytes: int = 0
    """Written to keep the state."""
    parts: dict[str, float] = field(default_factory=dict)
    """Seconds, summed over tasks that ran beside each other, by what they were spent on."""


class Cpu:
    """CPU time of this process and of all below it that still run."""

    def __init__(self) -> None:
        self._before = self._now()

    def _now(self) -> float:
        return sum(cpu_s(one) for one in [_ME, *_ME.children(recursive=True)])

    def used(self) -> float:
        return self._now() - self._before


_ME = psutil.Process()


def cpu_s(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)


@contextmanager
def spark_session(parallelism: int, progress: Progress) -> Iterator[SparkSession]:
    conf = {"spark.driver.memory": HEAP, "spark.driver.extraJavaOptions": OPTIONS}
    conf["spark.sql.streaming.numRecentProgressUpdates"] = "100000"  # all of a run
    conf["spark.sql.shuffle.partitions"] = str(parallelism)
    config = SiteConfig(name="bench", master=MASTER.format(parallelism), conf=conf)
    spark = OwnSpark(config, "bench", progress=progress)
    try:
        yield spark.session
    finally:
        spark.close()


def stage(
    spark: SparkSession,
    workload: Workload,
    folder: Path,
    warm: Path,
    *,
    checkpoint_s: float = 1.0,
    kind: type[StageRun] = StageRun,
) -> Took:
    """Ours, with results and checkpoints, from when it can take its first tuple. Spark ends idle
    Python workers: a short run before has them started again."""
    with stage_run(spark, stage_over(warm), 1.0, kind=kind) as (run, _):
        for _ in run.windows(START_WATERMARK):
            pass
    cpu = Cpu()
    made = stage_over(folder, lateness_us=LONG_US)
    with stage_run(spark, made, checkpoint_s, kind=kind) as (run, state):
        begun = time.monotonic()
        groups = total = 0
        for table, _ in run.windows(START_WATERMARK):
            groups += len(table)
            total += int(sum(table.column("_r0").to_numpy()))
        seconds, used = time.monotonic() - begun, cpu.used()
        run.ask(WriteCheckpoint())
        return Took(seconds, used, groups, total, _written(run, state), run.spent())


def _written(run: StageRun, state: Path) -> int:
    """What its server has written; where that goes to memory, which is not counted, what is
    there."""
    return max(int(psutil.Process(run.server.pid).io_counters().write_bytes), _size(state))


@contextmanager
def stage_run(
    spark: SparkSession, made: Stage, checkpoint_s: float, *, kind: type[StageRun] = StageRun
) -> Iterator[tuple[StageRun, Path]]:
    folder = scratch_folder()
    run = stage_started(spark, made, checkpoint_s, folder, kind)
    try:
        yield run, folder
    finally:
        run.close()
        shutil.rmtree(folder, ignore_errors=True)


def stage_started(
    spark: SparkSession,
    made: Stage,
    checkpoint_s: float,
    state: Path,
    kind: type[StageRun] = StageRun,
) -> StageRun:
    run = kind(spark, made, state, slots=cores(spark), checkpoint_s=checkpoint_s)
    run.start()
    return run


def spark_own(spark: SparkSession, workload: Workload, folder: Path, store: str) -> Took:
    """Spark's streaming aggregate, its results given to nobody, from when its first batch begins.
    It keeps every version of so short a run: what is there is what was written."""
    checkpoint = scratch_folder()
    try:
        cpu = Cpu()
        query = start_spark_own(spark, workload, folder, store, checkpoint)
        query.processAllAvailable()
        ended, used = time.time(), cpu.used()
        progress = query.recentProgress
        seconds = ended - datetime.fromisoformat(progress[0]["timestamp"]).timestamp()
        query.stop()
        groups = int(progress[-1]["stateOperators"][0]["numRowsTotal"])
        rows = sum(one["numInputRows"] for one in progress)
        if rows != workload.rows:
            raise TaskError(f"Spark has read {rows} of {workload.rows} tuples")
        return Took(seconds, used, groups, 0, _size(checkpoint))
    finally:
        shutil.rmtree(checkpoint, ignore_errors=True)


def start_spark_own(
    spark: SparkSession, workload: Workload, folder: Path, store: str, checkpoint: Path
) -> StreamingQuery:
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", f"{_STATE}{STORES[store]}")
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", FILES_PER_BATCH)
    form = {"parquet": "parquet", "text": "csv"}[workload.input]
    frame = reader.option("header", "true").format(form).load(str(folder))
    summed = frame.groupBy("key").sum("value")
    writer = summed.writeStream.outputMode("update").format("noop")
    return writer.option("checkpointLocation", str(checkpoint)).start()


def product(spark: SparkSession, folder: Path) -> Took:
    """A query of a system, with its stage, queue, sink task and sink; from when it is deployed."""
    cluster = ClusterConfig.of_sites(["here"])
    with System(cluster, spark) as system:
        cpu = Cpu()
        system.execute(QUERY.format(folder=folder, day=LONG_US // 86_400_000_000))
        begun = time.monotonic()
        system.wait(None)
        seconds, used = time.monotonic() - begun, cpu.used()
        results = pq.read_table(system.folder / "sums")
        total = pc.sum(results.column("s")).as_py()
    return Took(seconds, used, len(results), int(total))


def duckdb_alone(workload: Workload, folder: Path, threads: int = 2) -> Took:
    """The limit: the same files, all at once, without a stream."""
    db = duckdb.connect(":memory:")
    db.execute(f"SET threads = {threads}")
    cpu, begun = Cpu(), time.monotonic()
    read = f"read_{workload.suffix}('{folder}/*.{workload.suffix}')"
    found = db.execute(
        "SELECT count(*), sum(s)::BIGINT FROM"
        f" (SELECT key, sum(value) AS s FROM {read} GROUP BY key)"
    ).fetchone()
    db.close()
    assert found is not None
    return Took(time.monotonic() - begun, cpu.used(), *found)


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
