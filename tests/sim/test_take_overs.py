"""Single moments of a take-over, in the code that runs, on the virtual clock."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from anabranch.errors import AnabranchError, Gap, TaskError
from anabranch.link.messages import Acks, AskPrimary
from anabranch.site.tasks.task import Task
from simulation.bodies import SimTask
from simulation.operators import Join
from simulation.plan import Pace, Plan, SinkPlan, SourceSpec, TaskPlan
from simulation.site import SimSite
from simulation.world import World

STREAM_MS = 8_000
EARLY, MIDDLE = 2_000, 4_000


def plan() -> Plan:
    times = tuple(range(0, STREAM_MS, 50))
    rows = tuple((at, at % 7) for at in times)
    return Plan(
        sources=tuple(SourceSpec(f"s{n}", f"room{n}", rows, times, times) for n in (1, 2)),
        tasks=(TaskPlan("t1", ("s1", "s2"), Join((200, 200), 3)),),
        sinks=(SinkPlan("t1", "centre"),),
        sites=("room1", "room2", "centre", "w1", "w2"),
        placed={"t1": "w1"},
        pace=Pace(delay=(1, 3), ack=100, work=2, queue_bytes=600_000),
        stream_ms=STREAM_MS,
    )


@pytest.fixture
def world() -> Iterator[World]:
    made = World(plan(), Random(1))
    yield made
    made.close()


def run(world: World, until: int) -> None:
    world.clock.run(until, lambda: False)


def ends_well(world: World) -> None:
    assert world.clock.run(20 * STREAM_MS, lambda: world.done), world.wrong


def primaries(world: World) -> list[SimSite]:
    return [one for one in world.sites.values() if "t1" in one.tasks and one.tasks["t1"].produces]


def primary(world: World) -> tuple[SimSite, Task]:
    (site,) = primaries(world)
    return site, site.tasks["t1"]


def standby(world: World) -> SimSite:
    return next(one for one in world.sites.values() if "t1" in one.service.protection.guards)


def says_it_runs(world: World, site: SimSite) -> bool:
    answers: list[Any] = []

    async def ask() -> None:
        answers.append(await site.service.protection.beat(AskPrimary("t1")))

    site.process.spawn(ask())
    run(world, world.clock.now + 1)
    return bool(answers[0].runs)


def test_a_primary_behind_what_was_released_goes_on_where_its_producers_were_told(
    world: World,
) -> None:
    """As one that has taken over while acks of the one before it were still on their way."""
    run(world, EARLY)
    early = primary(world)[1].restart_point()
    run(world, MIDDLE)
    site, task = primary(world)
    released = [world.sites[f"room{n}"].service.outlets[f"s{n}"].released for n in (1, 2)]
    assert all(then < now for then, now in zip(early.inputs, released, strict=True))

    async def fall_behind() -> None:
        site.service.links.unfollow(task)
        inlets = site.service.deployment.new_inlets(task)
        for inlet, position in zip(inlets, early.inputs, strict=True):
            inlet.start_at(position)
        await task.restart(early, inlets)
        site.service.links.follow_inputs(task)

    site.process.spawn(fall_behind())
    run(world, MIDDLE + 500)
    assert primary(world) == (site, task)
    assert task.state == "running"
    assert all(now >= then for now, then in zip(task.processed, released, strict=True))
    ends_well(world)


def test_one_that_failed_because_its_inputs_are_gone_is_taken_over(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SimTask, "fail", Task.fail)
    run(world, MIDDLE)
    site, task = primary(world)
    successor = standby(world)
    task.fail(Gap("stream s1: 7 was asked for, 9 released"))
    assert not says_it_runs(world, site)
    ends_well(world)
    assert primary(world)[0] is successor


def test_one_that_failed_without_a_standby_is_put_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its inputs are kept until somebody has been posted."""
    monkeypatch.setattr(SimTask, "fail", Task.fail)
    run(world, MIDDLE)
    task = primary(world)[1]
    world.crash(standby(world).name, 5_000)
    task.fail(Gap("stream s1: 7 was asked for, 9 released"))
    ends_well(world)


def test_one_that_failed_by_its_query_is_not_taken_over(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever ran it next would fail, too: it is said, and stays."""
    monkeypatch.setattr(SimTask, "fail", Task.fail)
    run(world, MIDDLE)
    site, task = primary(world)
    task.fail(TaskError("query t1 failed: DIVIDE_BY_ZERO"))
    assert says_it_runs(world, site)
    run(world, MIDDLE + 3_000)
    assert primary(world) == (site, task)
    assert task.state == "failed"


def test_one_that_cannot_begin_anew_where_it_is_told_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[AnabranchError] = []
    monkeypatch.setattr(SimTask, "fail", lambda self, error: failed.append(error))
    run(world, MIDDLE)
    site, task = primary(world)

    async def restart(point: object, inlets: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(task, "restart", restart)
    site.service.protection.behind(task, Gap("stream s1: 7 was asked for, 9 released"))
    run(world, MIDDLE + 500)
    assert "no space left on device" in str(failed[0])


def test_a_standby_that_is_too_late_to_claim_retires(world: World) -> None:
    run(world, MIDDLE)
    late = standby(world)
    guard = late.service.protection.guards["t1"]
    for n in (1, 2):  # one of a later epoch was quicker
        world.sites[f"room{n}"].service.outlets[f"s{n}"].claim("t1", guard.post.epoch + 1)
    late.process.do(guard.take_over)
    run(world, MIDDLE + 100)
    assert guard.state == "retired"
    assert late.tasks.get("t1") is not guard.task
    ends_well(world)


@pytest.mark.parametrize("age", [0, 1])
def test_only_the_epoch_that_was_replaced_stops(
    world: World, monkeypatch: pytest.MonkeyPatch, age: int
) -> None:
    """The answer to an ack may come when its task has already begun a later epoch."""
    run(world, MIDDLE)
    site, task = primary(world)
    whole = site.network.call

    async def call(where: str, message: Any, timeout_s: float) -> Any:
        answer = await whole(where, message, timeout_s)
        return [("t1", task.epoch - age)] if isinstance(message, Acks) else answer

    monkeypatch.setattr(site.network, "call", call)
    run(world, MIDDLE + 250)
    monkeypatch.undo()
    assert (site.tasks.get("t1") is task) == bool(age)
    ends_well(world)
