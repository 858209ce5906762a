"""Deadlines and shedding, as a program asks for them."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch import Cluster, source
from anabranch.errors import AdmissionError, ScriptError
from tests.link.support import eventually


def task(cluster: Cluster, name: str) -> dict[str, Any]:
    tasks = [one for site in cluster.status()["sites"] for one in site["tasks"]]
    return next(one for one in tasks if one["name"] == name)


def test_results_are_held_against_their_deadline(cluster: Cluster) -> None:
    s = cluster.stream("s", {"n": "BIGINT"}, at="room1")
    kept = s.where("n > 2").select(m="n * 2").deadline("1h").start("kept", at="room1", follow=False)
    never = (
        s.select(m="n + 1")
        .deadline("2ms", best_effort=True)
        .start("never", at="room2", follow=False)
    )
    assert "DEADLINE 1h" in kept.explain()
    assert "kept: sub-deadline 1h, 1h from the source on" in kept.explain()
    assert "BEST EFFORT" in never.explain()
    s.push([{"n": n} for n in range(10)])
    eventually(lambda: task(cluster, "kept")["judged"] == 7, within_s=30)
    found = task(cluster, "kept")
    assert (found["late"], found["overran"], found["sub_deadline_ms"]) == (0, 0, 3_600_000)
    eventually(lambda: task(cluster, "never")["judged"] == 10, within_s=30)


def test_what_cannot_hold_is_refused_and_nothing_is_left(cluster: Cluster) -> None:
    s = cluster.stream("s", {"n": "BIGINT"}, at="room1")
    with pytest.raises(AdmissionError, match=r"query q cannot hold DEADLINE 1ms .* DEADLINE 4"):
        s.select("n").deadline("1ms", cost="4ms").start("q", at="room1", follow=False)
    assert cluster.status()["reads"] == {}
    s.select("n").deadline("10ms", cost="4ms").start("q", at="room1", follow=False)


def test_a_query_with_a_deadline_goes_where_it_holds(cluster: Cluster) -> None:
    """400 ms due in 500 ms fit once a site."""
    s = cluster.stream("never_measured", {"n": "BIGINT"}, at="room1")
    first = s.select("n").deadline("500ms", cost="400ms").start("first", follow=False)
    second = s.select(m="n + 1").deadline("500ms", cost="400ms").start("second", follow=False)
    assert first.site == "room1"
    assert second.site != "room1"


def test_what_is_shed_is_counted(cluster: Cluster) -> None:
    rate = source("rate", tps=2_000, rows=2_000, v="CAST(value % 3 AS INT)")
    s = cluster.stream(
        "s", {"value": "BIGINT", "v": "INT"}, at="room1", source=rate, shed="50/h KEEP BY v + 0.5"
    )
    rows = list(s.select("value", "v").start("q"))
    (stream,) = [one for site in cluster.status()["sites"] for one in site["sources"]]
    assert (stream["rows"], stream["shed"]) == (50, 1_950)
    assert len(rows) == 50
    assert [row["value"] for row in rows] == sorted(row["value"] for row in rows)


def test_the_argument_is_blamed(cluster: Cluster) -> None:
    with pytest.raises(ScriptError, match=r"stream\(shed\): .*unknown column 'w'"):
        cluster.stream("s", {"v": "INT"}, at="room1", source=source("rate"), shed="5/s KEEP BY w")
