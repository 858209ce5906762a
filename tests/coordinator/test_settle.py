"""After a restart of everything what can goes on, and nothing is thrown away by itself."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anabranch.config.cluster import ClusterConfig
from anabranch.coordinator.base.reports import AnySite, QueryState
from anabranch.coordinator.service.coordinator import Coordinator
from anabranch.coordinator.status.query_states import query_states
from anabranch.coordinator.status.status import heard, with_obstacles
from anabranch.errors import (
    AnabranchError,
    CannotResume,
    ConfigError,
    SetupError,
    SinkAway,
    SinkBehind,
    SinkError,
    SiteError,
    SourceAway,
    SourceError,
    StorageError,
)
from anabranch.link.gate import Credentials, Gate
from anabranch.link.message import Message
from anabranch.link.messages import Addresses as PeersMessage
from anabranch.link.messages import (
    Announce,
    Attach,
    Detach,
    DropTasks,
    Points,
    Prepare,
    SetPositions,
    Start,
    StartSources,
    Status,
)
from anabranch.link.reports import SiteReport
from anabranch.plan.catalog import QueryDef
from anabranch.plan.operators import Union
from anabranch.runtime.troubles import Backoff
from simulation.reports import a_site, a_source, a_task
from tests.plan.samples import a_query, a_stream

TOKEN = Credentials("test")
KINDS = (
    Announce,
    Attach,
    Detach,
    DropTasks,
    PeersMessage,
    SetPositions,
    Points,
    Prepare,
    Start,
    StartSources,
    Status,
)


class Site:
    """As its coordinator sees it: it runs what it has been told to start, unless something is in
    the way of one of its streams or queries."""

    def __init__(self, name: str, coordinator: Coordinator) -> None:
        self.name = name
        self.in_the_way: dict[str, AnabranchError] = {}
        self.prepared: list[Prepare] = []
        self.dropped: list[DropTasks] = []
        self._sources: dict[str, str] = {}
        self._tasks: dict[str, str] = {}
        self._coordinator = coordinator
        self.gate = Gate("127.0.0.1:0", TOKEN, dict.fromkeys(KINDS, self._answer))
        self.beat()

    def beat(self) -> None:
        self._coordinator.sites.heartbeat(self._report())

    def runs(self) -> set[str]:
        return {name for name, state in (self._sources | self._tasks).items() if state == "running"}

    def _report(self) -> SiteReport:
        sources = [a_source(name, self.name, state=state) for name, state in self._sources.items()]
        tasks = [a_task(name, self.name, state=state) for name, state in self._tasks.items()]
        return a_site(self.name, *sources, *tasks, address=self.gate.address)

    def _answer(self, asked: Message) -> Any:
        match asked:
            case Prepare():
                self.prepared.append(asked)
                for name in [*(one.name for one in asked.sources), *(t.name for t in asked.tasks)]:
                    if name in self.in_the_way:
                        raise self.in_the_way[name]
                self._sources |= {one.name: "waiting" for one in asked.sources}
                self._tasks |= {one.name: "waiting" for one in asked.tasks}
            case DropTasks():
                self.dropped.append(asked)
                for name in (*asked.sources, *asked.tasks):
                    self._sources.pop(name, None)
                    self._tasks.pop(name, None)
            case Start():
                self._tasks |= dict.fromkeys(asked.tasks, "running")
            case StartSources():
                self._sources |= dict.fromkeys(asked.sources, "running")
            case Status():
                return self._report()
            case Attach():
                return 0
        return {}


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[Coordinator]:
    """Of a system whose catalog has two streams with a query each, all at one site."""
    made = Coordinator(tmp_path, ClusterConfig(), TOKEN)
    hot = a_query("hot", "fire", Union(), site="here")
    opened = a_query("open", "door", Union(), site="here")
    known = [a_stream("door", "here"), a_stream("fire", "here"), hot, opened]
    made._catalog.change(add=known, drop=())
    yield made
    made.close()


@pytest.fixture
def here(coordinator: Coordinator) -> Iterator[Site]:
    site = Site("here", coordinator)
    yield site
    site.gate.shutdown()


def status(coordinator: Coordinator) -> tuple[dict[str, QueryState], AnySite]:
    """The states of all queries, and what is said of the site."""
    known, held = coordinator._catalog.definitions(), coordinator._control.restorer.report()
    (report,) = with_obstacles(heard(coordinator.sites), known, held)
    return query_states([report], known, {}), report


PASSING = (SourceAway, SinkAway, SiteError, StorageError)
FINAL = (SourceError, CannotResume, SinkError, SinkBehind, ConfigError, SetupError)


@pytest.mark.parametrize("kind", [*PASSING, *FINAL])
def test_whatever_is_in_the_way_nothing_is_deployed_anew(
    coordinator: Coordinator, here: Site, kind: type[AnabranchError]
) -> None:
    """Nothing is dropped for good, and what has nothing to do with it goes on."""
    here.in_the_way["fire"] = kind("it is not there", remedy="Start it.")
    assert coordinator.settle()
    assert all(one.resume for one in here.prepared)
    assert all(one.resume for one in here.dropped)
    assert here.runs() == {"door", "open"}
    here.beat()
    states, site = status(coordinator)
    assert states["open"].state == "running"
    told = states["hot"]
    assert told.state == ("waiting" if kind in PASSING else "stuck")
    assert "it is not there. Start it" in told.reason
    assert site.state == ("up" if kind in PASSING else "stuck")


@pytest.mark.parametrize("kind", [SourceAway, CannotResume])
def test_it_is_tried_again_without_end(
    coordinator: Coordinator,
    here: Site,
    kind: type[AnabranchError],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A person may do something about what does not pass by itself."""
    monkeypatch.setattr("anabranch.coordinator.base.turns.FINAL", Backoff(0.1, 0.1))
    here.in_the_way["fire"] = kind("it is not there")
    coordinator.settle()
    here.in_the_way.clear()
    deadline = time.monotonic() + 20
    while here.runs() != {"door", "fire", "hot", "open"} and time.monotonic() < deadline:
        here.beat()
        time.sleep(0.05)
    assert here.runs() == {"door", "fire", "hot", "open"}
    assert all(one.resume for one in (*here.prepared, *here.dropped))
    here.beat()
    assert {one.state for one in status(coordinator)[0].values()} == {"running"}


def test_what_hangs_together_is_tried_again_together(
    coordinator: Coordinator, here: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query does not go on, nor is it said to, while its stream cannot."""

    class Uneven:
        def pause_s(self, tries: int, name: str) -> float:
            return 0.1 if name == "hot" else 2.5

    monkeypatch.setattr("anabranch.coordinator.base.turns.FINAL", Uneven())
    here.in_the_way["fire"] = CannotResume("its journal is damaged")
    coordinator.settle()
    deadline = time.monotonic() + 6
    while time.monotonic() < deadline:
        here.beat()
        assert "hot" not in here.runs()
        time.sleep(0.02)
    tried = [
        {one.name for one in asked.sources} | {task.name for task in asked.tasks}
        for asked in here.prepared
    ]
    assert sum("fire" in names for names in tried) > 2
    assert all(("hot" in names) == ("fire" in names) for names in tried)


def test_a_site_that_runs_all_of_it_is_left_alone(coordinator: Coordinator, here: Site) -> None:
    coordinator.settle()
    prepared = list(here.prepared)
    assert not coordinator.settle()
    assert here.prepared == prepared


def test_anew_each_query_is_a_creation_of_its_own(coordinator: Coordinator, here: Site) -> None:
    """What an earlier one wrote never counts as its."""
    before = coordinator._catalog.definitions()
    coordinator.deploy_anew()
    assert here.prepared
    assert not any(one.resume for one in here.prepared)
    after = coordinator._catalog.definitions()
    assert list(after) == list(before)
    runs = [one.run for one in (*before.values(), *after.values()) if isinstance(one, QueryDef)]
    assert len({*runs[2:]} - {*runs[:2]}) == 2
    assert not coordinator.deploys_anew


def test_anew_that_was_cut_short_begins_again(coordinator: Coordinator, here: Site) -> None:
    """There is nothing any more that could go on."""
    here.in_the_way["fire"] = ConfigError("its options are wrong")
    with pytest.raises(ConfigError, match="its options are wrong"):
        coordinator.deploy_anew()
    assert coordinator.deploys_anew
    here.in_the_way.clear()
    coordinator.deploy_anew()
    assert here.runs() == {"door", "fire", "hot", "open"}


def test_anew_waits_for_what_is_away(coordinator: Coordinator, here: Site) -> None:
    here.in_the_way["fire"] = SourceAway("no broker answers")
    answer = here._answer

    def back_soon(asked: Message) -> Any:
        if len(here.prepared) == 2:
            here.in_the_way.clear()
        return answer(asked)

    here.gate.shutdown()
    here.gate = Gate("127.0.0.1:0", TOKEN, dict.fromkeys(KINDS, back_soon))
    here.beat()
    coordinator.deploy_anew()
    assert here.runs() == {"door", "fire", "hot", "open"}
