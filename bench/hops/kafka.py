"""Kafka → selection → Kafka on a real broker: from record to record, ours and Spark's
micro-batches one after the other, at the same rate.

Spark reads through a Python data source, since its own connector for Kafka is a separate download.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

import numpy as np
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.types import LongType, StructField, StructType

from anabranch.config.cluster import ClusterConfig
from anabranch.config.model import Durability
from anabranch.scratch import scratch_folder
from bench.systems.kafka import Broker
from bench.systems.system import System

Progress = Callable[[str], None]
Start = Callable[[SparkSession, str, str, str], Any]
PER_S = 1_000
WARM_UP_S = 15.0
PATIENCE_S = 60.0
"""For the first result, on a machine that is busy."""
EVERY_S = 0.005
SCRIPT = """
CREATE STREAM readings (id BIGINT, sent BIGINT)
  FROM kafka(servers = '{servers}', topic = '{source}', event_time = 'record', start = 'latest')
  AT here;
CREATE QUERY selected AS SELECT id * 2 AS twice, sent FROM readings WHERE id % 10 != 3
  INTO kafka(servers = '{servers}', topic = '{target}') AT here;
"""


def run(
    spark: SparkSession,
    progress: Progress,
    servers: str | None,
    seconds: float = 30.0,
    warm_up_s: float = WARM_UP_S,
    durability: Durability = "process",
) -> dict[str, Any]:
    """Milliseconds from sending a record until its result is read; on a broker of its own if none
    is named. `durability` is ours."""
    starts: dict[str, Start] = {
        "ours": partial(_ours, durability),
        "micro_batch": _micro_batches,
    }
    if servers is not None:
        return _measure(starts, spark, progress, servers, seconds, warm_up_s)
    with _own_broker() as broker:
        return _measure(starts, spark, progress, broker.servers, seconds, warm_up_s)


def _measure(
    starts: Mapping[str, Start],
    spark: SparkSession,
    progress: Progress,
    servers: str,
    seconds: float,
    warm_up_s: float,
) -> dict[str, Any]:
    result: dict[str, Any] = {"tuples_per_s": PER_S}
    for name, start in starts.items():
        progress(f"{name}: warming up …")
        source, target = (_topic(servers, f"bench-{uuid.uuid4().hex[:8]}") for _ in range(2))
        with closing(start(spark, servers, source, target)), closing(Load(servers, source)):
            ages = _ages_ms(
                servers, target, seconds, warm_up_s, partial(progress, f"{name}: measuring …")
            )
        p50, p99 = np.percentile(ages, [50, 99])
        result[name] = {"p50_ms": float(p50), "p99_ms": float(p99), "results": len(ages)}
    ours, batches = result["ours"], result["micro_batch"]
    return {
        **result,
        "latency_ratio": ours["p50_ms"] / batches["p50_ms"],
        "p99_ratio": ours["p99_ms"] / batches["p99_ms"],
    }


@contextmanager
def _own_broker() -> Iterator[Broker]:
    broker = Broker()
    try:
        broker.start()
        yield broker
    finally:
        broker.remove()


def _topic(servers: str, name: str) -> str:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
    return name


class Load:
    """Records at a steady rate, a few at a time, each with the moment at which it was sent."""

    def __init__(self, servers: str, topic: str) -> None:
        self._producer = Producer(
            {"bootstrap.servers": servers, "linger.ms": 0, "acks": 1, "log_level": 0}
        )
        self._topic = topic
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._send, name="load", daemon=True)
        self._thread.start()

    def _send(self) -> None:
        begun, sent = time.monotonic(), 0
        while not self._stopped.wait(EVERY_S):
            due = int((time.monotonic() - begun) * PER_S)
            for number in range(sent, due):
                value = json.dumps({"id": number, "sent": time.time_ns() // 1000})
                self._producer.produce(self._topic, value.encode())
            sent = due
            self._producer.poll(0)

    def close(self) -> None:
        self._stopped.set()
        self._thread.join()
        self._producer.flush(10)


def _ages_ms(
    servers: str, topic: str, seconds: float, warm_up_s: float, measuring: Callable[[], None]
) -> list[float]:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "bench",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 5,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    begin, told = time.monotonic() + warm_up_s, False
    ages: list[float] = []
    try:
        while time.monotonic() < begin + seconds + (0 if ages else PATIENCE_S):
            if not told and time.monotonic() >= begin:
                told = True
                measuring()
            for message in consumer.consume(500, 0.02):
                now = time.time_ns() // 1000
                if time.monotonic() >= begin and not message.error():
                    ages.append((now - json.loads(message.value() or b"")["sent"]) / 1e3)
    finally:
        consumer.close()
    return ages


def _ours(
    durability: Durability, spark: SparkSession, servers: str, source: str, target: str
) -> System:
    cluster = ClusterConfig.of_sites(["here"]).model_copy(update={"durability": durability})
    system = System(cluster, spark)
    system.execute(SCRIPT.format(servers=servers, source=source, target=target))
    return system


class MicroBatches:
    """The same query as a stream of Spark's, a batch after the other."""

    def __init__(self, spark: SparkSession, servers: str, source: str, target: str) -> None:
        producer = Producer({"bootstrap.servers": servers, "linger.ms": 0, "log_level": 0})

        def write(batch: DataFrame, number: int) -> None:
            for row in batch.toArrow().to_pylist():
                producer.produce(target, json.dumps(row).encode())
            producer.flush()

        spark.dataSource.register(KafkaSource)
        frame = spark.readStream.format("bench_kafka").options(servers=servers, topic=source).load()
        self._query = (
            frame.where("id % 10 != 3")
            .selectExpr("id * 2 AS twice", "sent")
            .writeStream.foreachBatch(write)
            .option("checkpointLocation", str(scratch_folder()))
            .trigger(processingTime="0 seconds")
            .start()
        )

    def close(self) -> None:
        self._query.stop()


_micro_batches = MicroBatches


class KafkaSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "bench_kafka"

    def schema(self) -> StructType:
        return StructType([StructField("id", LongType()), StructField("sent", LongType())])

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:
        return KafkaReader(self.options["servers"], self.options["topic"])


class KafkaReader(SimpleDataSourceStreamReader):
    """What is there, behind an offset; partition 0 is all there is."""

    def __init__(self, servers: str, topic: str) -> None:
        self._settings = {
            "bootstrap.servers": servers,
            "group.id": "bench-spark",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 5,
        }
        self._topic = topic
        self._consumer: Consumer | None = None

    def initialOffset(self) -> dict[str, int]:
        return {"next": 0}

    def read(self, start: dict[str, int]) -> tuple[Iterator[Row], dict[str, int]]:
        if self._consumer is None:
            self._consumer = Consumer(self._settings)
            self._consumer.assign([TopicPartition(self._topic, 0, start["next"])])
        messages = self._consumer.consume(5_000, 0.02)
        rows = [json.loads(one.value() or b"") for one in messages if not one.error()]
        after = {"next": start["next"] + len(rows)}
        return iter([Row(row["id"], row["sent"]) for row in rows]), after

    def readBetweenOffsets(
        self, start: dict[str, int], end: dict[str, int]
    ) -> Iterator[Row]:  # only after a failure
        return iter(())
