"""Placing again what runs: what would move, what that saves, and what becomes of failing moves."""

from __future__ import annotations

from typing import Any

from anabranch.config.cluster import ClusterConfig
from anabranch.coordinator.base.catalog import IN_MEMORY, Catalog
from anabranch.coordinator.base.reports import Sample
from anabranch.coordinator.placement.placing import Placing
from anabranch.errors import SiteError
from anabranch.plan.catalog import AnyDef
from anabranch.plan.definitions import placed as definitions_placed
from tests.plan.test_system import JOIN, SITES, system


class FakeSites:
    def __init__(self, *names: str) -> None:
        self.there = list(names or SITES)

    def alive(self) -> list[str]:
        return self.there

    def record(self, name: str) -> Any:
        return None

    def peer(self, name: str) -> Any:
        raise SiteError(f"{name} is not asked here")


def placing(known: dict[str, AnyDef], sites: FakeSites | None = None) -> Placing:
    catalog = Catalog(IN_MEMORY)
    catalog.change(add=known.values(), drop=())
    around: Any = sites or FakeSites()
    return Placing(around, catalog, ClusterConfig())


def measured(rates: dict[str, float], **loads: float) -> Sample:
    latency = {a: {b: 0.01 for b in SITES if b != a} for a in SITES}
    return Sample(0.0, latency, rates, {}, loads)


def test_a_query_goes_to_where_most_comes_from() -> None:
    known = system(JOIN)
    found = placing(known)
    assert known["q"].site == "room1"  # type: ignore[union-attr]
    found.monitor.add(0.0, measured({"A": 1.0, "C": 100.0}))
    would = found.again()
    assert ("q", "room1", "room2") in [(one.task, one.was_at, one.site) for one in would.moves]
    assert would.after < would.before
    assert 0 < would.saved < 1
    assert would.to_dict()["moves"][0]["problem"] == ""


def test_what_saves_little_stays() -> None:
    found = placing(system(JOIN))
    found.monitor.add(0.0, measured({"A": 1.0, "C": 1.02}))
    assert not found.again().moves


def test_a_site_that_is_asked_too_much_is_not_given_more() -> None:
    known = system(JOIN, "CREATE QUERY heavy AS SELECT v FROM C AT room2")
    found = placing(known)
    found.monitor.add(0.0, measured({"A": 1.0, "C": 100.0}, heavy=0.8, q=0.5))
    assert "q" not in {one.task for one in found.again().moves if one.site == "room2"}


def test_a_site_that_is_asked_too_much_is_relieved() -> None:
    """Though most comes from there: what is pinned there takes nearly all of it."""
    known = system("CREATE QUERY heavy AS SELECT v FROM C AT room2", JOIN)
    found = placing(known)
    found.monitor.add(0.0, measured({"A": 1.0, "C": 100.0}))
    (move,) = [one for one in found.again().moves if one.task == "q"]
    known["q"] = definitions_placed(known["q"], "q", move.site)
    again = placing(known)
    again.monitor.add(0.0, measured({"A": 1.0, "C": 100.0}, heavy=0.8, q=0.5))
    away = {one.task: one.site for one in again.again().moves}
    assert (move.site, away["q"] != "room2") == ("room2", True)
    assert again.report()["q"].text.endswith("less"), "the runner-up is where it should be"


def test_while_a_site_is_gone_what_it_feeds_stays_and_the_rest_is_placed() -> None:
    known = system(JOIN, "CREATE QUERY alone AS SELECT v FROM A WHERE v > 7 INTO f() ON centre")
    found = placing(known, FakeSites("room1", "centre"))
    found.monitor.add(0.0, measured({"A": 1.0, "alone": 90.0}))
    would = found.again()
    assert {one.task: one.site for one in would.moves} == {"alone": "centre"}
    assert "is at room2, which is gone" in would.stays["q"]
    assert "it stays: " in found.report()["q"].text
    assert found.notes({}) == {}
    assert found.picture().startswith("<svg")


def test_status_says_why_an_operator_is_where_it_is() -> None:
    found = placing(system(JOIN))
    found.monitor.add(0.0, measured({"A": 100.0, "C": 1.0}))
    told = found.report()["q"]
    assert told.site == "room1"
    assert told.runner_up in ("room2", "centre")
    assert told.worse > 0
    assert told.text.endswith("times as much")


def test_a_site_that_joins_is_used_once_it_is_known_to_be_near() -> None:
    known = system(JOIN + " INTO f() ON centre")
    sites = FakeSites("centre", "new", "room1", "room2")
    found = placing(known, sites)
    found.monitor.add(0.0, measured({"A": 1.0, "C": 1.0, "q": 1.0}))
    assert "new" not in {one.site for one in found.again().moves}
    near = {
        a: {b: 0.001 if "new" in (a, b) else 0.1 for b in sites.there if b != a}
        for a in sites.there
    }
    for at in range(1, 20):
        found.monitor.add(at, Sample(at, near, {"A": 1.0, "C": 1.0, "q": 1.0}))
    assert {one.task: one.site for one in found.again().moves}["q"] == "new"
    sites.there.remove("new")  # it leaves before anything has moved
    assert "new" not in {one.site for one in found.again().moves}


def test_what_does_not_move_is_said_with_the_reason() -> None:
    known = system("CREATE QUERY d AS SELECT v FROM A DEADLINE 5s", JOIN, pocket=True)
    staged = known["q"]
    known["q"] = staged.model_copy(update={"stages": ("q.stage",)})
    found = placing(known)
    found.monitor.add(0.0, measured({"A": 1.0, "C": 100.0}))
    would = found.again()
    assert would.moves == ()
    assert would.stays["d"] == "it is where DEADLINE 5s was promised"
    assert would.stays["q"] == "it reads q.stage, whose state is there"
    assert found.report()["d"].text.endswith("; it stays: it is where DEADLINE 5s was promised")


def test_what_pays_once_the_dearest_has_moved_moves_with_it() -> None:
    """A move costs a tenth of all: beside a flood nothing else would seem worth it."""
    known = system(JOIN, "CREATE QUERY small AS SELECT v FROM A WHERE v > 7 INTO f() ON centre")
    found = placing(known)
    found.monitor.add(0.0, measured({"A": 1.0, "C": 1000.0, "small": 9.0}))
    would = {one.task: one.site for one in found.again().moves}
    assert would["q"] == "room2"
    assert would["small"] == "centre"


def test_where_nothing_runs_nothing_moves() -> None:
    found = placing({})
    assert found.again().moves == ()
    assert found.again().saved == 0
    assert (found.report(), found.cost()) == ({}, 0)
    assert found.picture().startswith("<svg")
