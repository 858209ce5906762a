"""What benchmarks of whole paths say of a short run."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from bench.hops import kafka as kafka_bench
from bench.hops import replay
from tests.servers.kafka import Kafka

pytestmark = pytest.mark.spark


def quietly(text: str) -> None:
    pass


def test_a_replay_is_compared_with_sparks_own(spark: SparkSession) -> None:
    result = replay.run(spark, quietly, rows=20_000)
    assert result["tuples"] == 20_000
    expected = result["ours_tuples_per_s"] / result["spark_tuples_per_s"]
    assert result["throughput_ratio"] == pytest.approx(expected)


def test_records_are_timed_from_topic_to_topic(spark: SparkSession, kafka: Kafka) -> None:
    result = kafka_bench.run(spark, quietly, kafka.servers, seconds=2, warm_up_s=1)
    for name in ("ours", "micro_batch"):
        assert result[name]["results"] > 0
        assert 0 < result[name]["p50_ms"] <= result[name]["p99_ms"]
    ours, batches = result["ours"], result["micro_batch"]
    assert result["latency_ratio"] == ours["p50_ms"] / batches["p50_ms"]
    assert result["p99_ratio"] == ours["p99_ms"] / batches["p99_ms"]
