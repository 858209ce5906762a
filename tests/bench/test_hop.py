"""The hop that `bench hop` measures is a whole one: results come, and acks go back."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from anabranch.bench.hop import Hop, bare_seconds, compare, tuples
from tests.link.support import eventually

pytestmark = pytest.mark.spark


def test_what_has_passed_the_hop_is_released_at_its_source(spark: SparkSession) -> None:
    table = tuples(1000)
    hop = Hop(spark)
    try:
        for rounds in (1, 2):
            assert hop.seconds(table) > 0
            eventually(lambda last=1000 * rounds: hop.source.released == last)
    finally:
        hop.close()
    assert bare_seconds(spark, table) > 0


def test_what_is_written_holds_both_ratios(spark: SparkSession) -> None:
    result = compare(spark, lambda text: None, rounds=2, bulk_rounds=1)
    assert result["latency_ratio"] == result["hop_ms"] / result["bare_ms"]
    assert result["throughput_ratio"] == pytest.approx(
        result["hop_tuples_per_s"] / result["bare_tuples_per_s"]
    )
    assert all(value > 0 for value in result.values())
