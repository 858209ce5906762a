"""A million tuples through three sites: whole, in order, and in bounded memory."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from anabranch.bench import chain


@pytest.mark.slow
def test_three_sites_in_a_row_equal_plain_spark_in_bounded_memory(spark: SparkSession) -> None:
    """Memory is bounded by queues, so three times the input needs about the same."""
    result = chain.run([1_000_000, 3_000_000], lambda text: None, spark)
    assert [row["differences"] for row in result["rows"]] == [0, 0]
    assert result["memory_ratio"] < 1.1, result
