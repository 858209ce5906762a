"""Deploying is whole or not at all, and leaves nobody keeping tuples for the dead."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from anabranch.coordinator.deploy.deploy import Rollout, undeploy
from anabranch.errors import SinkError, SiteError
from anabranch.link.message import Message
from anabranch.link.messages import (
    Addresses,
    Attach,
    Begin,
    Detach,
    DropTasks,
    Prepare,
    Start,
    StartSources,
)
from anabranch.plan.operators import Call
from anabranch.stream.restart import RestartPoint
from tests.link.support import LOOP
from tests.plan.samples import HOT, a_query, a_stream

SENSOR = a_stream("Sensor1", site="room1")
HOTS = a_query("hot", "Sensor1", HOT, site="centre", sink=Call(name="console"))
KNOWN = {"Sensor1": SENSOR, "hot": HOTS}


class FakeSites:
    """Notes what each site is asked; `fails` says which (site, message) fails, and how."""

    def __init__(self, fails: dict[tuple[str, Any], Exception] | None = None) -> None:
        self.asked: list[tuple[str, Message]] = []
        self.forgotten: set[str] = set()
        self._fails = fails or {}

    def addresses(self) -> dict[str, str]:
        return {"room1": "h:1", "centre": "h:2"}

    def together(self, one: str, other: str) -> bool:
        return one == other

    async def call(self, site: str, message: Message[Any], seconds: float = 0.0) -> Any:
        self.asked.append((site, message))
        failure = self._fails.get((site, type(message))) or self._fails.get((site, "*"))
        if failure:
            raise failure
        return 7 if isinstance(message, Attach) else None

    def silent(self, site: str) -> bool:
        return False

    async def reach(self, site: str, message: Message[Any]) -> Any:
        return await self.call(site, message)

    def forget(self, site: str, sources: Collection[str], tasks: Collection[str]) -> None:
        self.forgotten |= {*sources, *tasks}

    def of(self, site: str, kind: type[Message[Any]]) -> list[Message[Any]]:
        return [one for asked, one in self.asked if asked == site and isinstance(one, kind)]


def test_no_tuple_passes_before_everyone_is_there() -> None:
    sites = FakeSites()
    LOOP.run(Rollout(sites, [SENSOR, HOTS], KNOWN).run())  # type: ignore[arg-type]
    order = [(site, type(one)) for site, one in sites.asked if not isinstance(one, Addresses)]
    assert order == [
        ("room1", Prepare),
        ("centre", Prepare),
        ("room1", Attach),
        ("centre", Attach),
        ("centre", Start),
        ("room1", StartSources),
    ]
    begin = Begin(RestartPoint((7,), 0))
    assert sites.of("centre", Start) == [Start({"hot": begin, "hot/sink": begin})]
    assert sites.of("room1", Attach) == [Attach("Sensor1", "hot")]


@pytest.mark.parametrize("kind", [Prepare, Addresses, Attach, Start])
def test_nothing_is_left_behind_when_a_step_fails(kind: type[Message[Any]]) -> None:
    """A step that fails may still have happened: its answer was lost."""
    sites = FakeSites({("centre", kind): SinkError("no permission")})
    with pytest.raises(SinkError, match="no permission"):
        LOOP.run(Rollout(sites, [SENSOR, HOTS], KNOWN).run())  # type: ignore[arg-type]
    assert sites.of("room1", DropTasks) == [DropTasks(sources=("Sensor1",), born={"Sensor1": 0})]
    assert sites.of("centre", DropTasks) == [
        DropTasks(("hot", "hot/sink"), born={"hot": 0, "hot/sink": 0})
    ]
    assert not sites.of("room1", StartSources)


def test_a_query_is_dropped_from_its_end() -> None:
    sites = FakeSites()
    LOOP.run(undeploy(sites, HOTS, KNOWN))  # type: ignore[arg-type]
    assert sites.of("centre", DropTasks) == [
        DropTasks(("hot/sink", "hot"), born={"hot": 0, "hot/sink": 0})
    ]
    assert sites.forgotten == {"hot", "hot/sink"}


def test_nobody_keeps_tuples_for_a_query_on_a_site_that_died() -> None:
    """It cannot detach itself any more; its producer would fill up and stall all others."""
    sites = FakeSites({("centre", "*"): SiteError("centre is unreachable")})
    LOOP.run(undeploy(sites, HOTS, KNOWN))  # type: ignore[arg-type]
    assert sites.of("room1", Detach) == [Detach("Sensor1", "hot")]
