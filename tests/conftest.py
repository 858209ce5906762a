"""What tests of several packages share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from anabranch.spark.own import warm_up
from anabranch.spark.session import start_session
from tests.servers.fixtures import kafka, postgres

# Many JVMs, none older than some minutes, on few cores: see anabranch.config.model.YOUNG_JVM.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")

__all__ = ["kafka", "postgres", "spark"]


JVM_FIXTURES = {"spark", "kafka"}
JVM_FOLDERS = {"api", "bench", "cli", "demo", "docs", "e2e", "face", "pockets", "setup", "stage"}
"""Whose tests start sites in processes of their own."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What starts a JVM is marked, so that `make fast` can do without. Files with long tests come
    first: workers take a file at a time, and then end at about the same moment."""
    for item in items:
        folder = item.path.relative_to(Path(__file__).parent).parts[0]
        if folder in JVM_FOLDERS or JVM_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker("spark")
    long_files = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in long_files)


@pytest.fixture(autouse=True)
def _no_process_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever became of the test: processes that work in its folder end with it."""
    yield
    folder: Path | None = getattr(request.node, "funcargs", {}).get("tmp_path")
    if folder and request.node.get_closest_marker("spark"):
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.pid != os.getpid() and folder in Path(process.cwd(), "x").parents:
                    process.kill()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One Spark for all tests, set up as a site sets it up: it takes seconds to start."""
    session = start_session("local[2]", {}, "tests", tmp_path_factory.mktemp("a site's scratch"))
    warm_up(session)
    yield session
    session.stop()
