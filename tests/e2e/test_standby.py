"""Queries that are taken over while they run give what the same queries give undisturbed.

Here nobody dies: standbys are told to take over, under load, with the old primaries alive and well,
so every take-over is also a test of fencing. tests/e2e/test_kill.py kills.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

import pytest

from anabranch.coordinator.base.reports import ProtectionReport
from anabranch.errors import AnabranchError
from anabranch.link.messages import TakeOver
from bench.systems.postgres import Postgres
from bench.systems.system import System, read_jsonl
from tests.e2e.commands import wait_until
from tests.servers.kafka import Kafka

ROWS = 4000
SOURCES = f"""
CREATE STREAM r (n BIGINT, x DOUBLE) FROM rate(tps = 1000, rows = {ROWS}, n = 'value',
  x = 'sin(value)') AT room1;
CREATE STREAM s (n BIGINT) FROM rate(tps = 500, rows = {ROWS // 2}, n = 'value * 3') AT room2;
"""
QUERIES = {
    "selection": "SELECT n, x * 2 AS y FROM r WHERE n % 3 <> 0",
    "rows": "SELECT SUM(x) AS s, MAX(n) AS m FROM r[100 ROWS SLIDE 10 ROWS]",
    "time": "SELECT n % 5 AS k, SUM(x) AS s FROM r[700ms SLIDE 100ms] GROUP BY n % 5",
    "join": "MASTER r SELECT r.n AS n, s.n AS m FROM r[200ms], s[300ms] WHERE r.n % 50 = s.n % 50",
}


@pytest.fixture
def small(system: System) -> Iterator[System]:
    yield system
    for path in system.folder.glob("*.jsonl"):
        path.unlink()


def standby_of(system: System, task: str) -> str | None:
    """Where the standby of a task is, once it could take over."""
    found = system.coordinator.status().protection.get(task)
    return found.standby if found and found.protected else None


def take_over(system: System, task: str) -> None:
    """Unless the standby has done so by itself: on a busy machine a primary may seem dead."""
    first = assignment(system, task).epoch

    def taken() -> bool:
        return int(assignment(system, task).epoch) > first

    wait_until(lambda: taken() or standby_of(system, task) is not None, f"{task} is protected", 30)
    if not taken():
        site = standby_of(system, task)
        assert site
        system.coordinator.sites.peer(site).send(TakeOver(task))
    wait_until(taken, f"{task} is taken over", 30)


def assignment(system: System, task: str) -> ProtectionReport:
    return system.coordinator.status().protection[task]


@pytest.mark.parametrize(
    ("query", "options"),
    [
        ("selection", "BATCH 1"),
        ("rows", "BATCH 70 COMPRESS zlib"),
        ("time", "BATCH UNLIMITED"),
        ("join", "BATCH 30 COMPRESS lz4"),
    ],
)
def test_taken_over_under_load(small: System, query: str, options: str) -> None:
    text = QUERIES[query]
    small.execute(
        f"""{SOURCES}
        CREATE QUERY still AS {text} INTO jsonl(path = 'still.jsonl') AT centre;
        CREATE QUERY moved AS {text} STANDBY ON room2 {options}
          INTO jsonl(path = 'moved.jsonl') ON room1 AT centre;"""
    )
    take_over(small, "moved")
    assert assignment(small, "moved").site == "room2"
    epoch = assignment(small, "moved").epoch
    status = small.wait()
    assert epoch > 0
    (task,) = [one for site in status.sites for one in site.tasks if one.name == "moved"]
    assert (task.site, task.role, task.epoch) == ("room2", "primary", epoch)
    expected = read_jsonl(small.folder / "still.jsonl")
    assert len(expected) > 100
    assert read_jsonl(small.folder / "moved.jsonl") == expected


def test_a_chain_with_two_readers_taken_over_at_both_ends(small: System) -> None:
    low, high = "SELECT n, x FROM r WHERE n % 3 <> 0", QUERIES["time"].replace("FROM r", "FROM {}")
    small.execute(
        f"""{SOURCES}
        CREATE QUERY low0 AS {low} AT centre;
        CREATE QUERY high0 AS {high.format("low0")} INTO jsonl(path = 'high0.jsonl') AT room2;
        CREATE QUERY low AS {low} STANDBY ON room2 BATCH 50 INTO jsonl(path = 'low.jsonl') ON room1
          AT centre;
        CREATE QUERY high AS {high.format("low")} STANDBY ON centre BATCH 20 COMPRESS zstd
          INTO jsonl(path = 'high.jsonl') ON room1 AT room2;"""
    )
    take_over(small, "low")
    take_over(small, "high")
    small.wait()
    assert read_jsonl(small.folder / "high.jsonl") == read_jsonl(small.folder / "high0.jsonl")
    kept = [row["n"] for row in read_jsonl(small.folder / "low.jsonl")]
    assert kept == [n for n in range(ROWS) if n % 3]


def test_sinks_that_any_site_can_write_move_along(
    small: System, postgres: Postgres, kafka: Kafka
) -> None:
    topic = kafka.topic()
    small.execute(
        f"""{SOURCES}
        CREATE QUERY rows AS {QUERIES["selection"]} STANDBY ON room2 BATCH 40
          INTO postgres(url = '{postgres.url}', table = 'along') AT centre;
        CREATE QUERY records AS {QUERIES["selection"]} STANDBY ON room2 BATCH 40
          INTO kafka(servers = '{kafka.servers}', topic = '{topic}', format = 'csv') AT centre;"""
    )
    for task in ("rows", "records"):
        take_over(small, task)
    status = small.wait()
    sinks = [one for site in status.sites for one in site.tasks if one.sink]
    assert {one.site for one in sinks} == {"room2"}
    expected = [n for n in range(ROWS) if n % 3]
    found = postgres.execute("SELECT n, _pos FROM along ORDER BY _pos")
    assert found == list(zip(expected, itertools.count(1), strict=False))
    records = [record.value().decode().split(",") for record in kafka.records(topic)]
    assert [(int(n), int(pos)) for n, _, pos, _ in records] == found


def test_a_dropped_query_leaves_no_standby(small: System) -> None:
    small.execute(
        f"""{SOURCES}
        CREATE QUERY q AS {QUERIES["join"]} STANDBY ON room2 INTO jsonl(path = 'q.jsonl') AT centre;
        """
    )
    wait_until(lambda: standby_of(small, "q") == "room2", "q is protected", 30)
    small.execute("DROP QUERY q;")
    wait_until(lambda: not standby_of(small, "q"), "nobody stands by", 10)
    status = small.coordinator.status()
    assert [one.name for site in status.sites for one in site.tasks] == []
    assert status.protection == {}


def test_a_query_without_another_host_is_shown_as_unprotected(small: System) -> None:
    """All sites of this system are one process, and ON was not said."""
    small.execute(f"{SOURCES} CREATE QUERY q AS {QUERIES['selection']} STANDBY AT centre;")
    problem = "no site but centre is up that could stand by"
    wait_until(
        lambda: getattr(small.coordinator.status().protection.get("q"), "problem", "") == problem,
        "the problem is told",
        10,
    )
    small.wait()


def test_a_failing_expression_fails_the_query_and_not_its_takeover(small: System) -> None:
    """It would fail on every site; a standby is no remedy, and the error is the user's to see."""
    small.execute(
        f"""{SOURCES}
        CREATE QUERY q AS SELECT 1 / (n - 1500) AS z FROM r STANDBY ON room2 BATCH 10
          INTO jsonl(path = 'q.jsonl') AT centre;"""
    )
    with pytest.raises(AnabranchError, match=r"(?i)divi(de|sion) by zero"):
        small.wait(30)
    epoch = assignment(small, "q").epoch
    time.sleep(1.5)
    assert assignment(small, "q").epoch == epoch
