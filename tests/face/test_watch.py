"""Who looks costs those who work nothing, however slow he is."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from anabranch.config.cluster import ClusterConfig
from anabranch.face.system import System as Face
from anabranch.face.watch import HISTORY, Watch
from bench.face.simulated import SimulatedCoordinator
from bench.systems.system import System, read_jsonl


def test_a_viewer_who_never_reads_holds_up_nobody() -> None:
    """He misses moments; what is kept for him stays the same size."""
    clock = itertools.count(1_000.0)
    watch = Watch(SimulatedCoordinator(4, 8, lambda: next(clock)).status)

    async def look() -> int:
        async with watch.subscribe() as queue:
            for _ in range(100):
                watch.step()
                await asyncio.sleep(0)
            newest = watch.now
            waiting = [queue.get_nowait() for _ in range(queue.qsize())]
            assert waiting[-1].snapshot is newest
            return len(waiting)

    assert asyncio.run(look()) <= 16
    assert len(watch.history) <= HISTORY


def test_who_has_left_is_told_nothing() -> None:
    clock = itertools.count(1_000.0)
    watch = Watch(SimulatedCoordinator(2, 4, lambda: next(clock)).status)

    async def leave() -> None:
        async with watch.subscribe():
            watch.step()

    asyncio.run(leave())
    watch.step()  # his loop is closed by now


@pytest.mark.spark
def test_a_tail_that_nobody_reads_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    system = System(ClusterConfig.of_sites(["room1"]), spark, tmp_path)
    face = Face(system.coordinator, tmp_path)
    try:
        system.execute(
            "CREATE STREAM s (value BIGINT, text STRING) FROM rate(tps = 20000, rows = 60000,"
            " text = \"repeat('x', 500)\") AT room1;"
            "CREATE QUERY q AS SELECT value, text FROM s INTO jsonl(path = 'q.jsonl');"
        )
        with face.tail("q", "one"), face.tail("s", "one"):
            system.wait()
        assert [row["value"] for row in read_jsonl(tmp_path / "q.jsonl")] == list(range(60_000))
    finally:
        face.close()
        system.close()
