"""Requests drawn from the API's schema, on a real system."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from anabranch.config.cluster import ClusterConfig
from anabranch.face.system import System as Face
from bench.face.fuzz import Fuzz
from bench.systems.system import System

REQUESTS = 120


@pytest.mark.slow
@pytest.mark.spark
def test_no_request_fails_and_no_reader_changes_anything(
    spark: SparkSession, tmp_path: Path
) -> None:
    running = System(ClusterConfig.of_sites(["room1", "room2"]), spark, tmp_path)
    face = Face(running.coordinator, tmp_path)
    face.start()
    try:
        found = Fuzz(face).run(REQUESTS, seed=1, progress=print)
    finally:
        face.close()
        running.close()
    assert found["problems"] == []
    assert sum(found["sent"].values()) == REQUESTS
    assert set(found["sent"]) == {"stranger", "reader", "operator"}
