from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from anabranch.config.cluster import ClusterConfig
from bench.systems.system import System


@pytest.fixture(scope="module")
def module_system(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[System]:
    cluster = ClusterConfig.of_sites(["room1", "room2", "centre"])
    running = System(cluster, spark, tmp_path_factory.mktemp("system"))
    yield running
    running.close()


@pytest.fixture
def system(module_system: System) -> Iterator[System]:
    """Three sites in this process, with nothing deployed before and after."""
    yield module_system
    module_system.drop_all()
