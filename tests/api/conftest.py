from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from anabranch import Cluster


@pytest.fixture(scope="module")
def shared(spark: SparkSession) -> Iterator[Cluster]:
    with Cluster.local("room1", "room2", "centre", spark=spark) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Three sites with nothing on them; relative paths start in a folder of the test's own."""
    monkeypatch.chdir(tmp_path)
    yield shared
    known = shared.status()
    drop = [f"DROP POCKET `{name}`;" for name in reversed(known["pockets"])]
    drop += [f"DROP QUERY IF EXISTS `{name}`;" for name in reversed(known["reads"])]
    drop += [f"DROP STREAM IF EXISTS `{name}`;" for name in known["streams"]]
    drop += [f"DROP TABLE `{name}`;" for name in known["tables"]]
    drop += [f"DROP AGGREGATE `{row[0]}`;" for row in shared.sql("SHOW AGGREGATES;")[0].rows]
    shared.sql("".join(drop))
