"""Queries made in Python give what the same statements give."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from anabranch import Cluster, join, sink, source
from anabranch.api import Query, Stream
from anabranch.errors import AnabranchError, ConfigError, ScriptError, TaskError
from tests.api import stats

START = "2026-01-31T12:00:00Z"
START_US = 1_769_860_800_000_000


def sensor(cluster: Cluster, name: str, first: int, at: str, rows: int = 20) -> Stream:
    """One tuple every 100 ms, each a degree warmer."""
    return cluster.stream(
        name,
        {"Temp": "DOUBLE", "room": "INT"},
        at=at,
        source=source(
            "rate",
            tps=10_000,
            rows=rows,
            start=START,
            Temp=f"{first} + value",
            room="CAST(value % 2 AS INT)",
        ),
    )


def test_a_selection(cluster: Cluster) -> None:
    s1 = sensor(cluster, "Sensor1", 45, "room1")
    hot = s1.where("Temp > 60").select("Temp", f="Temp * 2").start("hot", at="centre")
    assert (hot.site, s1.site) == ("centre", "room1")
    assert list(hot) == [
        {"Temp": t, "f": t * 2, "_pos": n, "_ts": START_US + (n + 15) * 100}
        for n, t in enumerate((61.0, 62.0, 63.0, 64.0), start=1)
    ]
    assert list(hot) == []


def test_a_file_with_event_times_and_a_sink(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "a b'.csv").write_text(f"t,ts\n1,{START}\n2,2026-01-31T11:59:00Z\n3,{START}\n")
    s = cluster.stream(
        "a stream",
        {"t": "INT"},
        at="room1",
        timestamp="ts",
        lateness=timedelta(seconds=1),
        source=source("file", path=tmp_path / "a b'.csv", speed="max"),
    )
    kept = s.start("kept", into=sink("jsonl", path="out.jsonl"))
    assert [row["t"] for row in kept] == [1, 3]
    cluster.wait("20s")
    assert [json.loads(one)["t"] for one in Path("out.jsonl").read_text().splitlines()] == [1, 3]


def test_a_join_with_masters_and_a_self_join(cluster: Cluster) -> None:
    s1, s2 = sensor(cluster, "Sensor1", 45, "room1"), sensor(cluster, "Sensor2", 44, "room2")
    fire = (
        join(s1["1ms"], s2[1], master=s1)
        .where("Sensor1.Temp > 60")
        .where("Sensor2.Temp > 1 OR Sensor2.Temp < 0")
    )
    assert fire.sql == (
        "MASTER Sensor1 SELECT * FROM Sensor1[1ms], Sensor2[1 ROWS] WHERE Sensor1.Temp > 60"
        " AND (Sensor2.Temp > 1 OR Sensor2.Temp < 0)"
    )
    now, before = s1[1].alias("now"), s1["1s"].alias("before")
    jumps = join(now, before, master=now).select(jump="now.Temp - before.Temp")
    found = jumps.where("now.Temp > before.Temp + 18").start("jumps", at="room1")
    assert [row["jump"] for row in found] == [19.0]
    rows = list(fire.select("Sensor1.Temp").start("fire", follow=True, at="centre"))
    assert rows == []  # its streams had ended


def test_an_aggregate(cluster: Cluster) -> None:
    s1 = sensor(cluster, "Sensor1", 0, "room1", rows=40)
    means = (
        s1.window("1ms", slide="1ms")
        .group_by("room")
        .having("COUNT(*) > 1")
        .select("room", mean="AVG(Temp)", n="COUNT(*)")
        .start("means", at="centre")
    )
    table = means.to_pandas()
    assert list(table["n"]) == [5] * 8
    assert list(table["mean"])[:2] in ([4.0, 5.0], [5.0, 4.0])


def test_a_table_and_an_aggregate_of_ones_own(cluster: Cluster) -> None:
    Path("rooms.csv").write_text("id,name\n0,hall\n1,attic\n")
    rooms = cluster.table(
        "Rooms",
        {"id": "INT", "name": "STRING"},
        at="centre",
        source=source("file", path="rooms.csv"),
    )
    s1 = cluster.stream("Sensor1", {"Temp": "DOUBLE", "room": "INT"}, at="room1")
    named = join(s1[1], rooms).where("room = id").select("name", "Temp").start("named")
    cluster.aggregate("midrange", stats.Midrange, ["DOUBLE"], "DOUBLE")
    mids = named[2].select(mid="midrange(Temp)").start("mids")
    s1.push({"Temp": float(n), "room": n % 2, "_ts": START_US + n} for n in range(4))
    s1.end()
    assert [row["name"] for row in named] == ["hall", "attic"] * 2
    assert [row["mid"] for row in mids.to_arrow().to_pylist()] == [0.5, 2.5]
    assert named.describe() == {"name": "string", "Temp": "double"}


def test_explain_describe_and_drop(cluster: Cluster) -> None:
    s1 = sensor(cluster, "Sensor1", 0, "room1")
    draft = s1.where("Temp > 5").select("Temp")
    assert "selection Temp > 5" in draft.explain()
    assert cluster.status()["reads"] == {}
    query = draft.start("q")
    assert "stream Sensor1 from rate(" in query.explain()
    with pytest.raises(ScriptError, match="Sensor1 is read by q"):
        s1.drop()
    query.drop()
    s1.drop()
    assert cluster.status()["streams"] == []


@pytest.mark.parametrize(
    ("asked", "clause"),
    [
        ({}, ""),
        ({"on": "room 2", "batch": 100, "compress": True}, " ON `room 2` BATCH 100 COMPRESS"),
        ({"batch": "unlimited", "compress": "lz4"}, " BATCH unlimited COMPRESS lz4"),
        ({"recovery": "2s", "overhead": 0.3}, " RECOVERY 2s OVERHEAD 30%"),
        (
            {"recovery": timedelta(seconds=1.5), "overhead": "0.5%", "compress": False},
            " RECOVERY 1500000us OVERHEAD 0.5%",
        ),
    ],
)
def test_a_standby_as_the_draft_writes_it(
    cluster: Cluster, asked: dict[str, Any], clause: str
) -> None:
    s = cluster.stream("s", {"Temp": "DOUBLE"}, at="room1")
    draft = s.standby(batch=7).where("Temp > 5").standby(**asked)
    assert draft.sql == f"SELECT * FROM s WHERE Temp > 5 STANDBY{clause}"


@pytest.mark.parametrize(
    ("asked", "clause"),
    [
        ({}, ""),
        ({"best_effort": True}, " BEST EFFORT"),
        ({"cost": "3ms + 20us PER TUPLE"}, " COST 3ms + 20us PER TUPLE"),
    ],
)
def test_a_deadline_as_the_draft_writes_it(
    cluster: Cluster, asked: dict[str, Any], clause: str
) -> None:
    s = cluster.stream("s", {"Temp": "DOUBLE"}, at="room1")
    draft = s.deadline("9s").where("Temp > 5").deadline("300ms", **asked)
    assert draft.sql == f"SELECT * FROM s WHERE Temp > 5 DEADLINE 300ms{clause}"


def test_a_sink_at_a_site_of_its_own(cluster: Cluster) -> None:
    s1 = sensor(cluster, "Sensor1", 0, "room1", rows=3)
    query = s1.select("Temp").start(
        "q", at="centre", into=sink("jsonl", path="out.jsonl").on("room2")
    )
    places = [re.split("  +@ ", line) for line in query.explain().splitlines()]
    assert places[1:4] == [
        ["sink jsonl(path = 'out.jsonl')", "room2"],
        ["└─ link q", "centre → room2"],
        ["   └─ projection Temp  [q]", "centre"],
    ]
    cluster.wait("20s")
    rows = [json.loads(line)["Temp"] for line in Path("out.jsonl").read_text().splitlines()]
    assert rows == [0.0, 1.0, 2.0]


def test_what_is_there_already(cluster: Cluster) -> None:
    sensor(cluster, "Sensor1", 0, "room1")
    assert repr(cluster["sensor1"]) == "<stream Sensor1 at room1>"
    hot = cluster["Sensor1"].where("Temp > 17").start("hot")
    assert [row["Temp"] for row in hot] == [18.0, 19.0]
    again = cluster["hot"]
    assert isinstance(again, Query)
    with pytest.raises(ConfigError, match=r"this is not followed.*cluster\.query\(name\)"):
        list(again)
    with pytest.raises(ConfigError, match=r"there is no 'cold'. There are: Sensor1, hot"):
        cluster["cold"]


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda c, s: s.where("Tmep > 5").start("q"), "where: unknown column 'Tmep'"),
        (lambda c, s: s.select(f="Temp +").start("q"), r"select\(f\): "),
        (lambda c, s: s.select("Temp").start("q", at="attic"), r"start\(at\): unknown site"),
        (lambda c, s: s.start("s"), r"start\(name\): s exists already"),
        (lambda c, s: s.start("a`b"), r"start\(name\): 'a`b' is no name"),
        (lambda c, s: s.window("soon").select("COUNT(*)").start("q"), "the window of s: "),
        (lambda c, s: s.where("Temp > 1; DROP STREAM s").start("q"), "where: this is another"),
        (lambda c, s: s.start("q", into=sink("jsonl", pth="x")), r"jsonl\(\) has no option 'pth'"),
        (lambda c, s: s.start("q", into=sink("jsonl", path=object())), r"start\(into\): path: "),
        (lambda c, s: join(s["1s"], s["2s"], master=s), r"join\(master\): s stands for several"),
        (lambda c, s: join(s.where("Temp > 1")), r"join\(inputs\): what is joined is a stream"),
        (lambda c, s: c.stream("t", {"a": "DUBLE"}), r"stream\(columns\): a: unknown type 'DUBLE'"),
        (lambda c, s: c.stream("t", {"a": "INT"}, lateness="9 x"), r"stream\(lateness\): "),
        (
            lambda c, s: s.start("q", into=sink("console").on("attic")),
            r"start\(into\): on: unknown site 'attic'",
        ),
        (lambda c, s: s.standby(on="attic").start("q"), r"standby\(on\): unknown site 'attic'"),
        (
            lambda c, s: s.standby(on="room1").start("q", at="room1"),
            r"standby\(on\): the query itself runs",
        ),
        (lambda c, s: s.standby(batch=0).start("q"), r"standby\(batch\): a batch cannot have 0"),
        (lambda c, s: s.standby(recovery="5").start("q"), r"standby\(recovery\): '5' has no"),
        (lambda c, s: s.standby(overhead=1.5).start("q"), r"standby\(overhead\): an overhead of"),
        (lambda c, s: s.standby(compress="zst").start("q"), r"standby\(compress\): unknown compr"),
        (lambda c, s: join(s["1s"].standby()), r"join\(inputs\): what is joined is a stream"),
        (lambda c, s: c.query("s"), r"query\(name\): s is a stream"),
        (lambda c, s: list(s.start("q", follow=False)), "this is not followed"),
    ],
)
def test_a_mistake_is_said_of_its_argument(cluster: Cluster, mistake, message: str) -> None:
    s = cluster.stream("s", {"Temp": "DOUBLE"}, at="room1", source=source("rate", tps=1, Temp="1"))
    with pytest.raises(AnabranchError, match=message):
        mistake(cluster, s)


def test_a_query_that_fails_gives_its_results_first(cluster: Cluster) -> None:
    s = sensor(cluster, "Sensor1", 0, "room1", rows=3000)
    query = s.select(x="1 div CAST(Temp - 2999 AS INT)").start("q", at="room1")
    with pytest.raises(TaskError, match=r"query q failed: .*ivision by zero"):
        list(query)
    behind = cluster["q"].select("x").start("behind", at="centre")
    with pytest.raises(TaskError, match="query q failed"):
        behind.to_arrow()


def test_classes_that_no_site_could_load(cluster: Cluster) -> None:
    class Local:
        pass

    with pytest.raises(ConfigError, match=r"Local is not at the top of its module"):
        cluster.aggregate("a", Local, ["INT"], "INT")
    Local.__module__ = "__main__"
    with pytest.raises(ConfigError, match=r"defined in a notebook.* Put it into a file"):
        cluster.aggregate("a", Local, ["INT"], "INT")
