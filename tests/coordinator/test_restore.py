"""Putting back what sites ran before they died."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.coordinator.control.restorer import Restoration
from anabranch.coordinator.deploy.wanted import begun
from anabranch.coordinator.protection.assignments import RememberedState, RestartPoints
from anabranch.errors import CannotResume, SiteError
from anabranch.link.message import Message
from anabranch.link.messages import Attach, DropTasks, Prepare
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
    assert sites.asked[-1] == ("centre", DropTasks(("hot",), resume=True))


@pytest.mark.parametrize(
    ("released", "begins"),
    [(29, RestartPoint((29,), 0)), (30, None), (None, RestartPoint((29,), 0))],
)
def test_a_task_whose_point_is_lost_goes_on_only_where_nothing_was_let_go_of(
    released: int | None, begins: RestartPoint | None
) -> None:
    """It began after 29 of its input, and no site knows more of it: the file was damaged."""

    class Upstream(FakeSites):
        async def call(self, site: str, message: Message, seconds: float = 0.0) -> Any:
            return 29 if isinstance(message, Attach) else None

    async def consumer_state(task: Any) -> RememberedState | None:
        return None if released is None else RememberedState(None, (released,))

    sites, known = Upstream(), {"Sensor1": a_stream(), "hot": a_query()}
    protector = SimpleNamespace(
        restart_points=SimpleNamespace(points=no_points, consumer_state=consumer_state),
        assignments=SimpleNamespace(first=lambda name: RestartPoint((29,), 0)),
    )
    restoration = Restoration(sites, {"centre": {"hot"}}, known, protector)  # type: ignore[arg-type]
    (task,) = restoration._tasks
    if begins:
        assert LOOP.run(restoration._begin(task)) == begins
        return
    with pytest.raises(CannotResume, match="began behind 29 of its inputs, and 30 have been let"):
        LOOP.run(restoration._begin(task))


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
