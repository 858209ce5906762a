"""What `bench kept` measures, it measures of every query."""

from __future__ import annotations

from pyspark.sql import SparkSession

from bench.hops import kept


def test_all_queries_are_measured(spark: SparkSession) -> None:
    result = kept.run(spark, lambda text: None, 20, 50)
    assert len(result["evaluations"]) == 2 * len(kept.QUERIES)
    for row in result["evaluations"]:
        assert 0 < row["kept_least"] <= row["kept"]
        assert 0 < row["job_least"] <= row["job"]
    assert {row["query"] for row in result["changes"]} == set(kept.QUERIES) - {"selection"}
    assert all(row["per_s"] > 0 for row in result["changes"])
