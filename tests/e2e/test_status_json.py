"""What `anabranch status --json` says: its keys and their order are what scripts of users rely on.

`statuses/*.json` is what a system of this script said once. What it says now has the same keys, in
the same order, whatever the figures are.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from anabranch.config.cluster import ClusterConfig
from anabranch.coordinator.requests import AskStatus
from anabranch.link.message import plain
from anabranch.link.messages import TakeOver
from anabranch.link.peer import Peer
from anabranch.pocket import Pocket
from anabranch.site.programs.submission import classes, submission
from bench.systems.postgres import Postgres
from bench.systems.system import System

SAID = Path(__file__).parent / "statuses"
SCRIPT = """
CREATE STREAM r (n BIGINT, x DOUBLE) FROM rate(tps = 200, n = 'value', x = 'sin(value)') AT room1;
CREATE STREAM f (room STRING, value BIGINT) TIMESTAMP ts LATENESS 1s
  FROM file(path = 'f.csv') AT room2;
CREATE TABLE names (n BIGINT, name STRING) FROM file(path = 'names.csv') AT room2;
CREATE STREAM filled (message STRING) AT room1;
CREATE QUERY kept AS SELECT n % 5 AS k, SUM(x) AS s, COUNT(*) AS c FROM r[200ms] GROUP BY n % 5
  STANDBY ON room2 RECOVERY 2s OVERHEAD 50% AT room1;
CREATE QUERY due AS SELECT n, x * 2 AS y FROM r WHERE n % 3 <> 0 DEADLINE 5s BEST EFFORT
  INTO jsonl(path = 'due.jsonl');
CREATE QUERY looked AS SELECT r.n AS n, names.name AS name FROM r[1 ROWS], names
  WHERE r.n = names.n;
CREATE QUERY staged AS SELECT room, SUM(value) AS s FROM f[1s] GROUP BY room STAGE
  INTO jsonl(path = 'staged.jsonl');
CREATE QUERY means AS SELECT n % 4 AS k, AVG(x) AS x, window_end FROM r[300ms] GROUP BY n % 4
  APPROXIMATE WITHIN 0.5 CONFIDENCE 95% ON room2, room3
  INTO postgres(url = '{url}', table = 'status_means');
"""
ALARM = """
from anabranch.pocket import Pocket

class Alarm(Pocket):
    query = "SELECT n FROM r WHERE n % 50 = 0"
    output = "CREATE STREAM alarms (message STRING)"
    on_error = "skip"

    def row(self, row):
        if row["n"] % 100:
            raise ValueError("not this one")
        yield {"message": f"at {row['n']}"}
"""


@pytest.fixture(scope="module")
def running(
    spark: SparkSession, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[System]:
    folder = tmp_path_factory.mktemp("said")
    lines = [f"{100_000_000 + i * 100_000},room {i % 3},{i}" for i in range(60)]
    lines.insert(40, "90000000,late,1")
    (folder / "f.csv").write_text("\n".join(["ts,room,value", *lines]) + "\n")
    (folder / "names.csv").write_text("n,name\n1,one\n2,two\n")
    system = System(ClusterConfig.of_sites(["room1", "room2", "room3"]), spark, folder)
    system.execute(SCRIPT.format(url=postgres.url))
    (pocket,) = classes(ALARM, "/nowhere/alarm.py", Pocket)
    system.coordinator.submit(submission(pocket, ALARM, "/nowhere/alarm.py"), str(folder))
    yield system
    system.close()


def said(system: System) -> Any:
    """As the command gets it."""
    peer = Peer("the coordinator", system.coordinator.address, system.credentials)
    try:
        return plain(peer.send(AskStatus()))
    finally:
        peer.close()


def wait_for(true: Callable[[Any], bool], system: System) -> Any:
    deadline = time.monotonic() + 120
    while not true(status := said(system)):
        assert time.monotonic() < deadline, json.dumps(status, indent=1)
        time.sleep(0.2)
    return status


def tasks_of(status: Any, name: str) -> dict[str, Any]:
    """Role → the task."""
    return {
        task["role"]: task
        for site in status["sites"]
        for task in site["tasks"]
        if task["name"] == name
    }


def whole(status: Any) -> bool:
    """All that is only known after a while is there."""
    sources = {one["stream"]: one for site in status["sites"] for one in site["sources"]}
    due = tasks_of(status, "due")["primary"]
    return bool(
        tasks_of(status, "kept").get("standby", {}).get("tuning")
        and tasks_of(status, "Alarm")["primary"]["pocket"]["traceback"]
        and status["approximations"].get("means")
        and all(site["round_trips"] for site in status["sites"])
        and sources["staged.stage"]["state"] == "ended"
        and sources["r"]["newest"]
        and due["plans"]
        and due["p99_ms"] is not None
    )


BY_NAME = {
    "consumers",
    "ends",
    "kept",
    "offsets",
    "placement",
    "producers",
    "protection",
    "round_trips",
    "runs",
    "timeline",
    "traffic",
}
"""Objects that are maps: which keys they have, and in which order, depends on the moment."""


def changes(before: Any, now: Any, path: str = "status") -> Iterator[str]:
    """Where objects have other keys than before, or in another order, whatever the figures are."""
    if isinstance(before, dict) and isinstance(now, dict):
        if path.rpartition(".")[2] not in BY_NAME and list(before) != list(now):
            yield f"{path}: {', '.join(before)} -> {', '.join(now)}"
        for key in before.keys() & now.keys():
            yield from changes(before[key], now[key], f"{path}.{key}")
    elif isinstance(before, list) and isinstance(now, list):
        known = dict(map(named, before))
        for name, one in map(named, now):
            if name in known:
                yield from changes(known[name], one, f"{path}[{name}]")


def named(one: Any) -> tuple[str, Any]:
    """A site, task, source or worker by what it is called; of other lists any stands for all."""
    keys = ("name", "role", "stream", "site", "query")
    return " ".join(one[key] for key in keys if key in one) if isinstance(one, dict) else "", one


def was_said(name: str) -> Any:
    return json.loads((SAID / f"{name}.json").read_text())


@pytest.mark.spark
def test_a_status_has_the_keys_that_scripts_of_users_know(running: System) -> None:
    now = wait_for(whole, running)
    assert not list(changes(was_said("running"), now))

    running.coordinator.sites.peer("room2").send(TakeOver("kept"), 10.0)
    taken = wait_for(
        lambda status: "recovered" in tasks_of(status, "kept")["primary"].get("timeline", ()),
        running,
    )
    before = tasks_of(was_said("taken"), "kept")["primary"]
    assert not list(changes(before, tasks_of(taken, "kept")["primary"]))

    assert running.running
    running.running.close_local()
    away = wait_for(
        lambda status: all(one["state"] == "unreachable" for one in status["sites"]), running
    )
    assert not list(changes(was_said("away"), away))
