"""Queries that the system places: the same output wherever they are, also while they move."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from anabranch.coordinator.base.reports import Moved
from anabranch.plan.catalog import QueryDef
from bench.systems.system import System, read_jsonl

SITES = ("room1", "room2", "centre")
ROWS = 1_500
SOURCES = f"""
CREATE STREAM Sensor1 (Temp DOUBLE) FROM rate(tps = 200, rows = {ROWS}, start = 0, Temp = '40 + value % 30') AT room1;
CREATE STREAM Sensor2 (Temp DOUBLE) FROM rate(tps = 200, rows = {ROWS}, start = 0, Temp = '41 + value % 20') AT room2;
CREATE STREAM Sensor3 (Temp DOUBLE) FROM rate(tps = 200, rows = {ROWS}, start = 0, Temp = '43 + value % 25') AT room2;
"""  # noqa: E501
FIRE = """
CREATE QUERY {name} AS
  MASTER Sensor1 SELECT Sensor1.Temp AS t1, Sensor2.Temp AS t2, Sensor3.Temp AS t3
  FROM Sensor1[20ms], Sensor2[20ms], Sensor3[20ms]
  WHERE Sensor1.Temp > 50 AND Sensor2.Temp > 50 AND Sensor3.Temp > 50
    AND Sensor2.Temp < Sensor3.Temp
  INTO jsonl(path = '{name}.jsonl') ON centre {where};
"""


def output(system: System, name: str) -> list[dict[str, Any]]:
    return read_jsonl(system.folder / f"{name}.jsonl")


def nodes(system: System, name: str) -> dict[str, str]:
    found = system.coordinator._catalog.definitions()[name]
    assert isinstance(found, QueryDef)
    return {node.name: node.site for node in found.nodes}


def finished(system: System, *names: str) -> bool:
    """Once the sources have ended, and all files have as many lines and get no more."""
    deadline, before = time.monotonic() + 120, [-1]
    while time.monotonic() < deadline:
        sites = system.coordinator.status().sites
        ended = all(one.state == "ended" for site in sites for one in site.sources)
        now = [len(output(system, name)) for name in names]
        if ended and now == before and len(set(now)) == 1:
            return True
        before = now
        time.sleep(1)
    return False


@pytest.mark.spark
def test_the_same_output_wherever_it_is_placed(system: System) -> None:
    """The paper's scenario, without AT but on the sources and the alarm's sink."""
    places = {
        "free": "",
        "pinned": "AT room1",
        "some": "AT ANY OF (centre)",
        "others": "NOT AT room2",
        "elsewhere": "NOT AT ANY OF (room1, room2)",
    }
    queries = [FIRE.format(name=name, where=where) for name, where in places.items()]
    system.execute(SOURCES + "".join(queries))
    assert "room2" not in nodes(system, "others").values()
    assert set(nodes(system, "elsewhere").values()) == {"centre"}
    report = system.coordinator.status().placement
    assert "all would cost" in report["free"].text
    system.wait()
    expected = output(system, "pinned")
    assert len(expected) > 100
    for name in places:
        assert output(system, name) == expected, name


@pytest.mark.spark
def test_any_nodes_move_several_at_once_under_load(system: System) -> None:
    """Against the same query that stays."""
    stays, moves = FIRE.format(name="stays", where="AT room1"), FIRE.format(name="moves", where="")
    system.execute(SOURCES.replace("tps = 200", "tps = 100") + stays + moves)
    rng = random.Random(3)
    time.sleep(1)
    moved = 0
    for _ in range(2):
        now = nodes(system, "moves")
        wanted = [
            Moved(name, at, rng.choice([one for one in SITES if one != at]))
            for name, at in now.items()
        ]
        done = system.coordinator.move_all(wanted)
        assert [one.problem for one in done] == [""] * len(done)
        moved += len(done)
        assert nodes(system, "moves") == {one.task: one.site for one in wanted}
    assert moved >= 4
    assert finished(system, "moves", "stays")
    assert output(system, "moves") == output(system, "stays")


@pytest.mark.spark
def test_replan_says_what_would_move_and_moves_it(system: System) -> None:
    """A rate that nobody could know beforehand: the join goes to where most comes from."""
    system.execute("""
        CREATE STREAM quiet (n BIGINT) FROM rate(tps = 2, rows = 10000, n = 'value') AT room1;
        CREATE STREAM busy (n BIGINT) FROM rate(tps = 200, rows = 10000, n = 'value') AT room2;
        CREATE QUERY both AS SELECT quiet.n AS q, busy.n AS b FROM quiet[1s], busy[1s]
          WHERE quiet.n = busy.n;""")
    for name, at in nodes(system, "both").items():  # wherever it is: away from what is busy
        if at != "room1":
            system.coordinator.move(name, "room1")
    deadline = time.monotonic() + 60
    found = system.coordinator.replan(dry_run=True)
    while all(one.task != "both" for one in found.moves):
        assert time.monotonic() < deadline
        time.sleep(0.5)
        found = system.coordinator.replan(dry_run=True)
    assert {one.task: one.site for one in found.moves}["both"] == "room2"
    assert found.saved > 0
    done = system.coordinator.replan(dry_run=False)
    assert all(not one.problem for one in done.moves)
    assert system.coordinator._catalog.definitions()["both"].site == "room2"  # type: ignore[union-attr]
