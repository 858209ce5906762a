"""Putting back what sites ran before they died."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.coordinator.deploy.lost import begun
from anabranch.coordinator.deploy.restore import Restoration
from anabranch.coordinator.protection.restart_points import RestartPoints
from anabranch.errors import SiteError
from anabranch.link.message import Message
from anabranch.link.messages import Drop, Prepare
from anabranch.stream.restart import RestartPoint
from simulation.reports import a_site, a_source, a_task
from tests.link.support import LOOP
from tests.plan.samples import a_query, a_stream


class FakeSites:
    """`centre` answers; `room1`, where the stream is, has not come back."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Message]] = []

    async def call(self, site: str, message: Message, seconds: float = 0.0) -> Any:
        self.asked.append((site, message))
        if site == "room1":
            raise SiteError("room1 is unreachable")

    def addresses(self) -> dict[str, str]:
        return {}

    def check_state(self, site: str) -> None:
        """Its folder is the one it had."""


async def no_points(*needed: str) -> dict[str, Any]:
    return {}


def test_what_was_prepared_in_vain_does_not_pass_for_running() -> None:
    """It is taken off again, to be tried again, without forgetting where it would go on."""
    sites, known = FakeSites(), {"Sensor1": a_stream(), "hot": a_query()}
    protector = SimpleNamespace(
        routes=dict,
        restart_points=SimpleNamespace(points=no_points),
        assignments=SimpleNamespace(incarnation=lambda name: 0),
    )
    restoration = Restoration(sites, {"centre": {"hot"}}, known, protector)  # type: ignore[arg-type]
    with pytest.raises(SiteError, match="room1 is unreachable"):
        LOOP.run(restoration.run())
    site, first = sites.asked[0]
    assert (site, type(first)) == ("centre", Prepare)
    assert sites.asked[-1] == ("centre", Drop(("hot",), resume=True))


def test_nothing_goes_on_before_its_own_site_has_said_where() -> None:
    """Others may know an older point, behind what was let go of on the word of that site."""

    class Some:
        own: int | None = None

        async def ask(self, message: Message[Any]) -> dict[str, Any]:
            return {"room1": {"hot": RestartPoint((29,), 29)}}

        async def call(self, site: str, message: Message[Any]) -> dict[str, Any]:
            if self.own is None:
                raise SiteError(f"{site} does not answer")
            return {"hot": RestartPoint((self.own,), self.own)}

    class Assigned:
        def incarnation(self, task: str) -> int:
            return 0

    sites = Some()
    points = RestartPoints(sites, Assigned())  # type: ignore[arg-type]
    assert LOOP.run(points.points())["hot"].output == 29
    with pytest.raises(SiteError, match="centre does not answer"):
        LOOP.run(points.points("centre"))
    sites.own = 31
    assert LOOP.run(points.points("centre"))["hot"].output == 31


def test_what_was_only_prepared_has_not_begun() -> None:
    """Whoever was about to start it may have died; a source that nobody reads waits rightly."""
    report = a_site(
        "room1",
        a_source("read", state="waiting"),
        a_source("unread", state="waiting"),
        a_source("runs"),
        a_task("a", state="waiting"),
        a_task("b", state="done"),
    )
    assert begun(report, {"read", "runs"}) == {"unread", "runs", "b"}
