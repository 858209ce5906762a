"""A site that holds long windows is killed: it goes on with the state that it had kept, to the bit,
though nobody upstream has what led to it any more."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from anabranch.coordinator.base.reports import SystemStatus
from anabranch.coordinator.requests import AskStatus
from anabranch.coordinator.service.state import find_coordinator
from anabranch.link.reports import SnapshotReport, TaskReport
from tests.e2e.commands import all_gone, anabranch, family, start, wait_until

ROWS, HOUR_S = 200_000, 3600
CLUSTER = """
[cluster]
spares = 1
[cluster.queue]
max_bytes = "1MB"
[site.edge]
[site.centre]
isolation = "process"
"""
SUMS = """SELECT k, SUM(x) AS s, COUNT(*) AS c, COUNT(DISTINCT k % 3) AS d, window_start
  FROM readings[1h SLIDE 10m] GROUP BY k"""
SCRIPT = f"""
CREATE STREAM readings (k INT, x DOUBLE) TIMESTAMP ts
  FROM file(path = 'readings.csv', speed = 120) AT edge;
CREATE QUERY killed AS {SUMS} INTO jsonl(path = 'killed.jsonl') ON edge AT centre;
CREATE QUERY whole AS {SUMS} INTO jsonl(path = 'whole.jsonl') ON edge AT edge;
"""


def write_readings(path: Path) -> None:
    """Sums of these depend on the order and grouping of every addition."""
    rng = random.Random(5)
    with path.open("w") as file:
        file.write("k,x,ts\n")
        for number in range(ROWS):
            x = rng.gauss(0, 1) * 10.0 ** rng.randrange(-9, 9)
            file.write(f"{rng.randrange(50)},{x!r},{number * HOUR_S * 1_000_000 // ROWS}\n")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "cluster.toml").write_text(CLUSTER)
    write_readings(tmp_path / "readings.csv")
    up = start(["up", "--cluster", "cluster.toml"], tmp_path)
    try:
        wait_until(lambda: "sites: " in (tmp_path / "log").read_text(), "up", 150)
        yield tmp_path
    finally:
        processes = family(up.pid)
        up.send_signal(signal.SIGINT)
        up.wait(60)
        assert all_gone(processes) == []


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_killed_site_goes_on_with_what_it_kept(folder: Path) -> None:
    done = anabranch("sql", "-f", "script.sql", cwd=with_script(folder))
    assert done.returncode == 0, done.stderr
    wait_until(lambda: kept(folder).inputs > (ROWS // 3,), "much is kept", 120, folder / "log")
    # All windows are open, and need all tuples; the source's site has let go of most.
    (edge,) = [one for one in status(folder).sites if one.site == "edge"]
    assert edge.kept["readings"][0] < ROWS // 4
    pid = next(one.pid for one in status(folder).sites if one.site == "centre")
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not psutil.pid_exists(pid) or task(folder) is not None, "it is gone", 30)
    wait_until(lambda: finished(folder), "the end", 200, folder / "log")
    assert_same(folder)


def with_script(folder: Path) -> Path:
    (folder / "script.sql").write_text(SCRIPT)
    return folder


def assert_same(folder: Path) -> None:
    killed, whole = (
        (folder / f"{name}.jsonl").read_text().splitlines() for name in ("killed", "whole")
    )
    assert killed == whole
    counted: dict[int, int] = {}
    for line in whole:
        row = json.loads(line)
        counted[row["k"]] = counted.get(row["k"], 0) + row["c"]
    assert sum(counted.values()) == 6 * ROWS


def finished(folder: Path) -> bool:
    tasks = [one for site in status(folder).sites for one in site.tasks if one.sink]
    return len(tasks) == 2 and all(one.state == "done" for one in tasks)


def status(folder: Path) -> SystemStatus:
    coordinator = find_coordinator(folder / ".anabranch")
    try:
        return coordinator.send(AskStatus())
    finally:
        coordinator.close()


def task(folder: Path) -> TaskReport | None:
    found = (one for site in status(folder).sites for one in site.tasks if one.name == "killed")
    return next(found, None)


def kept(folder: Path) -> SnapshotReport:
    one = task(folder)
    assert one
    assert one.snapshot
    return one.snapshot
