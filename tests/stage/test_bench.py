"""`bench stage`, tiny: what it gives, not how fast."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bench.stage import bench, figures

TINY = bench.Size((10, 500), (2.0,), files=2, long=2, runs=2, rows_per_file=6_000)


@pytest.mark.spark
def test_a_point(spark: SparkSession, tmp_path: Path) -> None:
    engines = ["stage", "spark", "spark-rocksdb", "duckdb"]
    rows = list(bench._measured(spark, engines, TINY.workload("text", 50, 2.0), tmp_path, 1))
    assert [row["engine"] for row in rows] == engines
    assert all(row["tuples_per_s"] > 0 for row in rows)


@pytest.mark.soak
@pytest.mark.spark
def test_what_it_measures(spark: SparkSession, tmp_path: Path) -> None:
    found = bench.run(spark, lambda text: None, TINY)
    points = {(row["engine"], row["input"], row["keys"], row["zipf"]) for row in found["rows"]}
    for engine in ("stage", "spark", "spark-rocksdb", "duckdb"):
        for input in ("parquet", "text"):
            for point in ((10, 1.0), (500, 1.0), (500, 2.0)):
                assert (engine, input, *point) in points
    for row in found["rows"]:
        assert row["tuples_per_s"] > 0
        assert row["cpu_s_per_million"] >= 0
        assert row["runs"] == (2 if row["keys"] == 10 and row["engine"] != "flink" else 1)
        if row["engine"] == "stage":
            assert row["state_bytes"] > 0
            assert list(row["parts"]) == ["read", "aggregate", "put", "job", "flush"]
    assert found["checkpoint_ratio"] > 0
    assert found["slide_ratio"] > 0
    assert found["restart_ratio"] > 0
    assert found["spare_restart_ratio"] > 0
    assert set(found["restart_s"]) == {"stage", "spark", "stage, spare", "spark, spare"}
    pytest.importorskip("matplotlib")
    figures.draw(found["rows"], tmp_path)
    assert (tmp_path / "06-all-by-skew-text.svg").exists()
