"""What tests of several packages share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from anabranch.site.spark import start_session, warm_up
from tests.servers.fixtures import kafka, postgres

# Many JVMs, none older than some minutes, on few cores: see anabranch.config.presets.YOUNG_JVM.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")

__all__ = ["kafka", "postgres", "spark"]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One Spark for all tests, set up as a site sets it up: it takes seconds to start."""
    session = start_session("local[2]", {}, "tests", tmp_path_factory.mktemp("a site's scratch"))
    warm_up(session)
    yield session
    session.stop()
