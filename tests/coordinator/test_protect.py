"""Where a standby is posted, and when."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anabranch.coordinator.base.catalog import Catalog
from anabranch.coordinator.base.sites import Sites
from anabranch.coordinator.base.turns import Turns
from anabranch.coordinator.protection.assignments import Assignment
from anabranch.coordinator.protection.protect import Protector
from anabranch.link.gate import Credentials
from anabranch.link.network import FlightNetwork
from anabranch.link.peer import Peers
from anabranch.link.reports import TaskReport
from anabranch.plan.catalog import QueryDef
from anabranch.plan.definitions import placed, protected
from anabranch.plan.operators import Column
from anabranch.plan.tasks import TaskInput, TaskSpec
from simulation.reports import a_site, a_task, guarding
from tests.link.support import LOOP
from tests.plan.test_system import JOIN, system

COLUMNS = (Column(name="n", type="BIGINT"),)
SPEC = TaskSpec(
    name="q",
    query="q",
    site="centre",
    inputs=(TaskInput(stream="s", site="room", alias="s", columns=COLUMNS),),
    columns=COLUMNS,
    output="q",
)
PIDS = {"centre": 1, "neighbour": 1, "room": 2, "spare": 3, "store": 4}


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[Sites]:
    catalog = Catalog(tmp_path / "catalog.db")
    peers = Peers(Credentials("secret"))
    found = Sites(catalog, LOOP, FlightNetwork(LOOP, "", peers), peers, gone_after_s=60)
    yield found
    catalog.close()


@pytest.fixture
def protector(sites: Sites, tmp_path: Path) -> Iterator[Protector]:
    catalog = Catalog(tmp_path / "other.db")
    yield Protector(LOOP, sites, catalog, Turns(LOOP))
    catalog.close()


def beat(sites: Sites, site: str, *tasks: TaskReport, **said: Any) -> None:
    """The neighbour shares the centre's process."""
    sites.heartbeat(a_site(site, *tasks, address="h:1", pid=PIDS[site], **said))


def primary(epoch: int = 1, timeline: dict[str, float] | None = None) -> TaskReport:
    standby = None if timeline is None else guarding(timeline=timeline)
    return a_task("q", epoch=epoch, standby=standby)


def test_a_standby_is_where_neither_the_primary_nor_its_inputs_are(
    sites: Sites, protector: Protector
) -> None:
    beat(sites, "centre", primary())
    assignment = Assignment("centre", 1, stream="q")
    assert protector.choose(SPEC, assignment, None) is None
    beat(sites, "neighbour")
    assert protector.choose(SPEC, assignment, None) is None
    beat(sites, "room")
    assert protector.choose(SPEC, assignment, None) == "room"  # better than none
    beat(sites, "store", a_task("a"), a_task("b"))
    assert protector.choose(SPEC, assignment, None) == "store"
    beat(sites, "spare", a_task("c"))
    assert protector.choose(SPEC, assignment, None) == "spare"
    assert protector.choose(SPEC, assignment, "room") == "room"  # as the query says


def test_one_that_came_back_without_its_task_stands_by_for_itself(
    sites: Sites, protector: Protector
) -> None:
    for site in ("centre", "spare"):
        beat(sites, site)
    assert protector.choose(SPEC, Assignment("centre", 1, stream="q"), "spare") == "centre"


def test_whoever_took_over_recovers_first(sites: Sites, protector: Protector) -> None:
    protector.assignments.set("q", Assignment("centre", 1, "spare", 2, "q"))
    beat(sites, "spare", primary(epoch=2, timeline={"noticed": 1.0, "claimed": 1.1}))
    protector.learn({})
    assignment = protector.assignments["q"]
    assert (assignment.site, assignment.epoch, assignment.standby) == ("spare", 2, None)
    assert protector._recovers("q", assignment)
    beat(sites, "spare", primary(epoch=2, timeline={"claimed": 1.1, "recovered": 1.2}))
    assert not protector._recovers("q", assignment)


def test_it_is_not_waited_for_without_end(
    sites: Sites, protector: Protector, monkeypatch: pytest.MonkeyPatch
) -> None:
    protector.assignments.set("q", Assignment("centre", 1, "spare", 2, "q"))
    beat(sites, "spare", primary(epoch=2, timeline={"noticed": 1.0}))
    protector.learn({})
    monkeypatch.setattr("anabranch.coordinator.protection.protect.RECOVERY_S", -1.0)
    assert not protector._recovers("q", protector.assignments["q"])


def test_what_never_was_taken_over_does_not_recover(protector: Protector) -> None:
    assert not protector._recovers("q", Assignment("centre", 1, stream="q"))


def test_a_primary_that_only_others_know_of_is_believed_in(
    sites: Sites, protector: Protector
) -> None:
    """It died when it had told them so: they follow nobody of an earlier epoch any more."""
    protector.assignments.set("q", Assignment("centre", 1, "store", 4, stream="q"))
    beat(sites, "centre", primary(epoch=1), producers={"q": ("centre", 1)})
    beat(sites, "store")
    protector.learn({})
    assert protector.assignments["q"] == Assignment("centre", 1, "store", 4, stream="q")
    beat(sites, "room", producers={"q": ("store", 4)})
    protector.learn({})
    assert protector.assignments["q"] == Assignment("store", 4, None, 4, stream="q")
    assert protector.choose(SPEC, protector.assignments["q"], None) == "centre"


def test_what_reads_a_source_elsewhere_is_protected_too() -> None:
    """Where the source is, it dies and comes back with it; placed elsewhere it does not."""
    known = system(JOIN + " STANDBY NOT AT centre")
    query = known["q"]
    assert isinstance(query, QueryDef)
    (selection, *_), at = query.nodes, query.nodes[0].site
    assert selection.name not in protected(known)
    (elsewhere,) = {"room1", "room2"} - {at}
    known["q"] = placed(query, selection.name, elsewhere)
    assert {selection.name, "q"} <= protected(known).keys()
