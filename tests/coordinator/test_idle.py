"""When a run is over, told from statuses as sites report them."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.coordinator.base.reports import AnySite, SiteStatus, SystemStatus
from anabranch.coordinator.status.query_states import failures, idle, lost_sites, sources_of
from anabranch.errors import ConfigError, ErrorReport, SinkError
from anabranch.link.reports import SourceReport, TaskReport
from simulation.reports import a_source, a_status, a_task, silent, up

ENDS: dict[str, tuple[str, ...]] = {"hot": ("Sensor1",), "hotter": ("hot",)}


def source(stream: str, state: str, **said: Any) -> SourceReport:
    return a_source(stream, state=state, **{"finite": True} | said)


def task(name: str, state: str, **said: Any) -> TaskReport:
    return a_task(name, state=state, **said)


def status(*sites: AnySite, ends: dict[str, tuple[str, ...]] | None = None) -> SystemStatus:
    return a_status(*sites, ends=ENDS if ends is None else ends)


def site(*parts: TaskReport | SourceReport, missing: tuple[str, ...] = ()) -> SiteStatus:
    return up("room1", *parts, missing=missing)


ENDED, RUNNING = source("Sensor1", "ended"), source("Sensor1", "running")
DONE = [task("hot", "done"), task("hotter", "done"), task("hotter/sink", "done")]


def test_all_ended_and_done_is_idle() -> None:
    assert idle(status(site(ENDED), site(*DONE)))


@pytest.mark.parametrize(
    "sites",
    [
        [site(RUNNING), site(*DONE)],
        [site(ENDED), site(*DONE[:2], task("hotter/sink", "running"))],
        [site(ENDED), site(*DONE[1:], task("hot", "running"))],
        [site(ENDED), site(*DONE[1:], task("hot", "waiting"))],
    ],
)
def test_what_is_still_under_way_is_waited_for(sites: list[SiteStatus]) -> None:
    assert not idle(status(*sites))


def test_a_site_that_is_away_may_still_have_work() -> None:
    """What it does is unknown: its tasks are missing from the status, not done."""
    away = silent("room2", missing=("hot",))
    assert not idle(status(site(ENDED, *DONE), away))
    assert not idle(status(away))
    assert lost_sites(status(site(ENDED, *DONE), away)) == ["room2 is unreachable"]


def test_a_site_that_nothing_is_left_at_is_not_waited_for() -> None:
    """Others have taken over what was there."""
    assert idle(status(site(ENDED, *DONE), silent("room2")))


def test_a_site_that_came_back_empty_is_waited_for() -> None:
    assert not idle(status(site(ENDED), site(missing=("hot",))))


def test_standbys_are_not_waited_for() -> None:
    assert idle(status(site(ENDED, *DONE), site(task("hot", "running", role="standby"))))


def test_endless_sources_are_not_waited_for() -> None:
    endless = source("ticks", "running", finite=False)
    sites = [site(ENDED, endless), site(*DONE, task("count", "running"))]
    assert idle(status(*sites, ends=ENDS | {"count": ("ticks",)}))


def test_a_finite_source_that_nobody_reads_is_not_waited_for() -> None:
    unread = source("other", "waiting")
    assert idle(status(site(ENDED, unread, *DONE)))


@pytest.mark.parametrize("finite", [True, False])
def test_nothing_to_wait_for_is_an_error(finite: bool) -> None:
    ends = {} if finite else ENDS
    with pytest.raises(ConfigError, match="no query reads a source that ends"):
        idle(status(site(source("Sensor1", "running", finite=finite)), ends=ends))


def test_failures_are_as_they_were_raised() -> None:
    error = SinkError("disk full", place="centre", remedy="Make room.").report()
    broken = status(site(RUNNING), site(task("hot", "failed", error=error), *DONE[1:]))
    [failure] = failures(broken)
    assert isinstance(failure, SinkError)
    assert failure.line() == "centre: disk full. Make room."
    assert failures(status(site(ENDED, *DONE))) == []


def test_failed_sources_count_too() -> None:
    error = ErrorReport("SourceError", "stream S: no such file")
    assert [str(one) for one in failures(status(site(source("S", "failed", error=error))))] == [
        "stream S: no such file"
    ]


def test_the_source_of_a_chain() -> None:
    assert sources_of("hotter", ENDS) == {"Sensor1"}
    assert sources_of("Sensor1", ENDS) == {"Sensor1"}
    assert sources_of("both", ENDS | {"both": ("hot", "Sensor2")}) == {"Sensor1", "Sensor2"}
