"""When a run is over, told from statuses as sites report them."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.coordinator.service.idle import failures, idle, lost_sites, sources_of
from anabranch.errors import ConfigError, SinkError

ENDS = {"hot": ["Sensor1"], "hotter": ["hot"]}


def source(stream: str, state: str, *, finite: bool = True, error: Any = None) -> dict[str, Any]:
    return {"stream": stream, "state": state, "finite": finite, "error": error}


def task(name: str, state: str, *, error: Any = None, role: str = "primary") -> dict[str, Any]:
    query = name.partition("/")[0]
    return {"name": name, "query": query, "state": state, "error": error, "role": role, "epoch": 0}


def site(
    *parts: dict[str, Any], state: str = "up", problem: str = "", missing: tuple[str, ...] = ()
) -> dict[str, Any]:
    return {
        "missing": missing,
        "state": state,
        "problem": problem,
        "sources": [part for part in parts if "stream" in part],
        "tasks": [part for part in parts if "query" in part],
    }


def status(*sites: dict[str, Any], ends: dict[str, list[str]] | None = None) -> dict[str, Any]:
    return {"sites": list(sites), "ends": ENDS if ends is None else ends}


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
def test_what_is_still_under_way_is_waited_for(sites: list[dict[str, Any]]) -> None:
    assert not idle(status(*sites))


def test_a_site_that_is_away_may_still_have_work() -> None:
    """What it does is unknown: its tasks are missing from the status, not done."""
    away = site(state="unreachable", problem="room2 is unreachable", missing=("hot",))
    assert not idle(status(site(ENDED, *DONE), away))
    assert not idle(status(away))
    assert lost_sites(status(site(ENDED, *DONE), away)) == ["room2 is unreachable"]


def test_a_site_that_nothing_is_left_at_is_not_waited_for() -> None:
    """Others have taken over what was there."""
    assert idle(status(site(ENDED, *DONE), site(state="unreachable")))


def test_a_site_that_came_back_empty_is_waited_for() -> None:
    assert not idle(status(site(ENDED), site(missing=("hot",))))


def test_standbys_are_not_waited_for() -> None:
    assert idle(status(site(ENDED, *DONE), site(task("hot", "running", role="standby"))))


def test_endless_sources_are_not_waited_for() -> None:
    endless = source("ticks", "running", finite=False)
    sites = [site(ENDED, endless), site(*DONE, task("count", "running"))]
    assert idle(status(*sites, ends=ENDS | {"count": ["ticks"]}))


def test_a_finite_source_that_nobody_reads_is_not_waited_for() -> None:
    unread = source("other", "waiting")
    assert idle(status(site(ENDED, unread, *DONE)))


@pytest.mark.parametrize("finite", [True, False])
def test_nothing_to_wait_for_is_an_error(finite: bool) -> None:
    ends = {} if finite else ENDS
    with pytest.raises(ConfigError, match="no query reads a source that ends"):
        idle(status(site(source("Sensor1", "running", finite=finite)), ends=ends))


def test_failures_are_as_they_were_raised() -> None:
    error = SinkError("disk full", place="centre", remedy="Make room.").to_dict()
    broken = status(site(RUNNING), site(task("hot", "failed", error=error), *DONE[1:]))
    [failure] = failures(broken)
    assert isinstance(failure, SinkError)
    assert failure.line() == "centre: disk full. Make room."
    assert failures(status(site(ENDED, *DONE))) == []


def test_failed_sources_count_too() -> None:
    error = {"kind": "SourceError", "message": "stream S: no such file"}
    assert [str(one) for one in failures(status(site(source("S", "failed", error=error))))] == [
        "stream S: no such file"
    ]


def test_the_source_of_a_chain() -> None:
    assert sources_of("hotter", ENDS) == {"Sensor1"}
    assert sources_of("Sensor1", ENDS) == {"Sensor1"}
    assert sources_of("both", ENDS | {"both": ["hot", "Sensor2"]}) == {"Sensor1", "Sensor2"}
