"""`bench stage`, tiny: what it gives, not how fast."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bench.stage import bench, figures

TINY = bench.Size((10, 500), (2.0,), files=2, long=2, seconds=0.5, rows_per_file=6_000)
ENGINES = ("stage", "product", "shuffled", "spark", "spark-rocksdb", "duckdb")


@pytest.mark.spark
def test_a_point(spark: SparkSession, tmp_path: Path) -> None:
    point = TINY.workload("text", 50, 2.0)
    rows = list(bench.Bench(spark, tmp_path, 2, 0.01, lambda text: None).point(point))
    assert tuple(row["engine"] for row in rows if row["engine"] != "flink") == ENGINES
    assert all(row["tuples_per_s"] > 0 for row in rows)


@pytest.mark.soak
@pytest.mark.spark
def test_what_it_measures(spark: SparkSession, tmp_path: Path) -> None:
    found = bench.run(lambda text: None, TINY, lambda cores, progress: nullcontext(spark))
    points = {(row["engine"], row["input"], row["keys"], row["zipf"]) for row in found["rows"]}
    for engine in ENGINES:
        for input in ("parquet", "text"):
            for point in ((10, 1.0), (500, 1.0), (500, 2.0)):
                assert (engine, input, *point) in points
    for row in found["rows"]:
        assert row["tuples_per_s"] > 0
        assert row["cpu_s_per_million"] >= 0
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
