"""Deploying is whole or not at all, and leaves nobody keeping tuples for the dead."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.coordinator.deploy import Deployment, undeploy
from anabranch.errors import SinkError, SiteError
from anabranch.plan.operators import Call
from tests.plan.samples import HOT, a_query, a_stream

SENSOR = a_stream("Sensor1", site="room1")
HOTS = a_query("hot", "Sensor1", HOT, site="centre", sink=Call(name="console"))
KNOWN = {"Sensor1": SENSOR, "hot": HOTS}


class FakeSites:
    """Notes what each site is asked; `fails` says which (site, action) fails, and how."""

    def __init__(self, fails: dict[tuple[str, str], Exception] | None = None) -> None:
        self.calls: list[tuple[str, str]] = []
        self.bodies: list[dict[str, Any]] = []
        self._fails = fails or {}

    def addresses(self) -> dict[str, str]:
        return {"room1": "h:1", "centre": "h:2"}

    def together(self, one: str, other: str) -> bool:
        return one == other

    def peer(self, site: str) -> Any:
        return FakePeer(self, site)

    def answer(self, site: str, action: str, body: dict[str, Any]) -> Any:
        self.calls.append((site, action))
        self.bodies.append(body)
        failure = self._fails.get((site, action)) or self._fails.get((site, "*"))
        if failure:
            raise failure
        return 7 if action == "attach" else None

    def of(self, site: str, action: str) -> list[dict[str, Any]]:
        pairs = zip(self.calls, self.bodies, strict=True)
        return [body for call, body in pairs if call == (site, action)]


class FakePeer:
    def __init__(self, sites: FakeSites, site: str) -> None:
        self._sites = sites
        self._site = site

    def call(self, action: str, timeout_s: float = 0.0, **body: Any) -> Any:
        return self._sites.answer(self._site, action, body)


def test_no_tuple_passes_before_everyone_is_there() -> None:
    sites = FakeSites()
    Deployment(sites, [SENSOR, HOTS], KNOWN).run()  # type: ignore[arg-type]
    order = [call for call in sites.calls if call[1] != "peers"]
    assert order == [
        ("room1", "prepare"),
        ("centre", "prepare"),
        ("room1", "attach"),
        ("centre", "attach"),
        ("centre", "start"),
        ("room1", "start_sources"),
    ]
    assert sites.of("centre", "start") == [
        {"tasks": {"hot": {"inputs": [7]}, "hot/sink": {"inputs": [7]}}}
    ]
    assert sites.of("room1", "attach") == [{"stream": "Sensor1", "consumer": "hot", "after": None}]


@pytest.mark.parametrize("action", ["prepare", "peers", "attach", "start"])
def test_nothing_is_left_behind_when_a_step_fails(action: str) -> None:
    """A step that fails may still have happened: its answer was lost."""
    sites = FakeSites({("centre", action): SinkError("no permission")})
    with pytest.raises(SinkError, match="no permission"):
        Deployment(sites, [SENSOR, HOTS], KNOWN).run()  # type: ignore[arg-type]
    assert sites.of("room1", "drop") == [{"sources": ["Sensor1"], "tasks": []}]
    assert sites.of("centre", "drop") == [{"sources": [], "tasks": ["hot", "hot/sink"]}]
    assert ("room1", "start_sources") not in sites.calls


def test_a_query_is_dropped_from_its_end() -> None:
    sites = FakeSites()
    undeploy(sites, HOTS, KNOWN)  # type: ignore[arg-type]
    assert sites.of("centre", "drop") == [{"sources": [], "tasks": ["hot/sink", "hot"]}]


def test_nobody_keeps_tuples_for_a_query_on_a_site_that_died() -> None:
    """It cannot detach itself any more; its producer would fill up and stall all others."""
    sites = FakeSites({("centre", "*"): SiteError("centre is unreachable")})
    undeploy(sites, HOTS, KNOWN)  # type: ignore[arg-type]
    assert sites.of("room1", "detach") == [{"stream": "Sensor1", "consumer": "hot"}]
