"""Millions of tuples through three sites: whole, in order, and in bounded memory."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from bench.hops import chain


@pytest.mark.slow
def test_three_sites_in_a_row_equal_plain_spark(spark: SparkSession) -> None:
    result = chain.run([300_000], lambda text: None, spark)
    assert result["rows"][0]["differences"] == 0


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_memory_is_bounded(spark: SparkSession) -> None:
    """Memory is bounded by queues and heap, so twice the input needs about the same. Less
    input is no measure: between three and six million the JVM itself still grows."""
    result = chain.run([6_000_000, 12_000_000], lambda text: None, spark)
    assert [row["differences"] for row in result["rows"]] == [0, 0]
    assert result["memory_ratio"] < 1.1, result
