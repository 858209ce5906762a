"""Clusters that programs start and connect to, and what happens to their connections."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import anabranch
from anabranch import Cluster, source
from anabranch.api.queries import Readable
from anabranch.config.cluster import ClusterConfig as Config
from anabranch.coordinator.service.state import write_endpoint
from anabranch.errors import ConfigError, SiteError
from anabranch.link.outlet import LiveOutlet
from anabranch.link.wire import ArrowBatches, wire_schema
from anabranch.runtime.loop import process_loop
from bench.systems.system import System
from tests.link.support import an_outlet, eventually, follow, numbers

SCHEMA = wire_schema(pa.schema([pa.field("n", pa.int64())]))


def test_importing_the_package_is_light() -> None:
    code = (
        "import sys, anabranch; from anabranch import Pocket\n"
        "print([name for name in ('pyspark', 'pyarrow', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_what_the_package_exports() -> None:
    assert {"Cluster", "Pocket", "join", "sink", "source"} <= set(dir(anabranch))
    with pytest.raises(AttributeError, match="no attribute 'Clutser'"):
        anabranch.Clutser  # noqa: B018


@pytest.mark.parametrize(
    ("foreign", "ours"),
    [("filter", "where(condition)"), ("join", "join(a"), ("groupBy", "group_by("), ("nothing", "")],
)
def test_methods_of_frames_say_what_they_are_called_here(foreign: str, ours: str) -> None:
    with pytest.raises(AttributeError, match=f"no attribute '{foreign}'") as caught:
        getattr(Readable(), foreign)
    assert ours in str(caught.value)
    assert not hasattr(Readable(), foreign)


def test_connecting_to_a_system_that_runs(spark: SparkSession, tmp_path: Path) -> None:
    system = System(Config.of_sites(["only"]), spark, tmp_path)
    try:
        write_endpoint(system.state, system.coordinator.address, system.credentials)
        with Cluster.connect(system.state) as cluster:
            ticks = cluster.stream("ticks", {"n": "INT"})
            assert ticks.site == "only"
            query = ticks.start("q")
            ticks.push([(1,)])
            ticks.end()
            assert [row["n"] for row in query] == [1]
        assert system.coordinator.status().streams == ("ticks",)
    finally:
        system.close()


def test_connecting_to_nothing(tmp_path: Path) -> None:
    with pytest.raises(SiteError, match="no coordinator has its state in"):
        Cluster.connect(tmp_path)
    for wrong in ({}, {"file": "x.toml"}):
        with pytest.raises(ConfigError):
            Cluster.local(*(["a"] if wrong else []), **wrong)


def test_a_cluster_file(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text("[site.room]\n[site.hall]\n")
    with Cluster.local(file=tmp_path / "cluster.toml", spark=spark) as cluster:
        assert [one["site"] for one in cluster.status()["sites"]] == ["room", "hall"]


def test_a_broken_connection_loses_and_repeats_nothing(cluster: Cluster) -> None:
    s = cluster.stream(
        "s", {"n": "BIGINT"}, at="room1", source=source("rate", tps=2000, rows=2000, n="value")
    )
    query = s.start("q", at="centre")
    found: list[int] = []
    for number, batch in enumerate(query.batches()):
        found += batch.column("n").to_pylist()
        assert query._reader
        if query._reader._remote and number % 4 == 1:
            query._reader._remote.cancel()
    assert found == list(range(2000))


def outlet() -> LiveOutlet:
    return LiveOutlet(process_loop(), "s", ArrowBatches(SCHEMA), limit=1000, heartbeat_s=0.01)


def test_a_program_that_has_gone_is_forgotten() -> None:
    stream = outlet()
    stream.attach("task")
    stream.attach("program", lease=True)
    stream.look(10)
    assert stream.consumers == ("task", "program")
    time.sleep(0.02)
    stream.look(0.01)
    assert stream.consumers == ("task",)


def test_a_program_that_follows_is_not() -> None:
    stream = an_outlet()
    stream.attach("program", lease=True)
    stream.append([numbers(1, 1)], 1)
    following = follow(stream, "program", 0)
    next(following)
    time.sleep(0.02)
    stream.look(0.01)
    assert stream.consumers == ("program",)
    following.close()  # type: ignore[attr-defined]

    def forgotten() -> bool:
        stream.look(0.01)
        return stream.consumers == ()

    eventually(forgotten)
