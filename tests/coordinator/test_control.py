"""What the coordinator does while a site hangs, in virtual time."""

from __future__ import annotations

import re
from collections.abc import Coroutine, Iterator
from random import Random
from typing import Any

import pytest

from anabranch.coordinator.status.query_states import query_states
from anabranch.coordinator.status.status import heard, with_obstacles
from anabranch.plan.catalog import QueryDef
from anabranch.plan.operators import Node, Port
from anabranch.plan.service_levels import Standby
from simulation import plan
from simulation.run import simulate
from simulation.world import World

PROMISED_MS = 2_000


@pytest.fixture(params=[3, 9, 14, 18])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """Three sites at least, everything deployed and protected."""
    drawn = plan.draw(Random(request.param))
    world = World(drawn, Random(request.param))
    world.suffer(())
    assert world.clock.run(20_000, lambda: world.deployed)
    world.clock.run(world.clock.now + 500, lambda: False)
    yield world
    world.close()


def took_ms(world: World, coroutine: Coroutine[Any, Any, Any]) -> int:
    begun, process = world.clock.now, world.coordinator.process
    spawned = process.spawn(coroutine)
    assert world.clock.run(begun + 300_000, lambda: spawned.done)
    return world.clock.now - begun


def a_query(name: str, source: str, site: str, *, standby: bool) -> QueryDef:
    node = Node(
        name=name,
        site=site,
        inputs=(Port(stream=source, alias="i"),),
        operators=(),
        columns=plan.COLUMNS,
    )
    asked = Standby(batch=1) if standby else None
    return QueryDef(
        name=name, columns=plan.COLUMNS, site=site, written=node, nodes=(node,), standby=asked
    )


@pytest.mark.parametrize("standby", [False, True])
@pytest.mark.parametrize("fault", ["hangs", "is cut off"])
def test_a_statement_about_other_sites_does_not_wait_for_one_that_hangs(
    world: World, standby: bool, fault: str
) -> None:
    source = world.plan.sources[0]
    hung = next(name for name in world.plan.sites if name.startswith("w"))
    site = next(name for name in world.plan.sites if name not in (hung, source.site))
    control = world.coordinator.control

    def created_and_dropped() -> tuple[int, int]:
        query = a_query("late", source.name, site, standby=standby)
        created = took_ms(world, control.apply([query], (), world.catalog.definitions(), {}))
        assert "late" in world.catalog.definitions()
        dropped = took_ms(world, control.apply((), ["late"], world.catalog.definitions(), {}))
        assert "late" not in world.catalog.definitions()
        return created, dropped

    usual = created_and_dropped()
    if fault == "hangs":
        world.pause(hung, 200_000)
    else:
        world.wires.cut(hung, "coordinator", world.clock.now + 200_000)
    for now, before in zip(created_and_dropped(), usual, strict=True):
        assert now - before <= PROMISED_MS


BACK_MS = 2_000
SETTLED_MS = 15_000


def states(world: World) -> dict[str, tuple[str, str]]:
    """Query → its state and why, by what sites said last."""
    coordinator, control = world.coordinator, world.coordinator.control
    known, held = world.catalog.definitions(), control.restorer.report()
    reports = with_obstacles(heard(coordinator._sites), known, held)
    found = query_states(reports, world.catalog.definitions(), control.protector.report())
    return {name: (one.state, one.reason) for name, one in found.items()}


@pytest.mark.parametrize("together", [False, True], ids=["one by one", "all at once"])
@pytest.mark.parametrize("seed", [1, 5, 7])
def test_whoever_is_killed_no_query_waits_without_a_reason(seed: int, together: bool) -> None:
    """And all of them go on once everybody is back."""
    world = World(plan.draw(Random(seed)), Random(seed))
    world.suffer(())
    assert world.clock.run(20_000, lambda: world.deployed)
    names = tuple(world.plan.sites)
    told = set()
    for killed in [names] if together else [(name,) for name in names[:3]]:
        for name in killed:
            world.crash(name, BACK_MS)
        for _ in range(SETTLED_MS // 100):
            world.clock.run(world.clock.now + 100, lambda: False)
            for state, reason in states(world).values():
                assert bool(reason) == (state not in ("running", "done")), (state, reason)
                told.add(state)
        assert {state for state, _ in states(world).values()} <= {"running", "done"}
    assert "no input" in told or "lost" in told
    world.close()


def test_who_took_what_over_is_told() -> None:
    """A line for the terminal of `up`, whichever way it came about."""
    lines = (line for seed in range(1, 10) for line in simulate(seed, trace=True).lines)
    said = [line for line in lines if " took over " in line]
    assert said
    assert all(re.search(r"coordinator +\S+ took over query \S+ from \S+$", one) for one in said)


def test_statements_about_the_same_name_come_one_after_the_other(world: World) -> None:
    """The second was decided on the grounds of what was there before the first."""
    source, control = world.plan.sources[0], world.coordinator.control
    query = a_query("late", source.name, source.site, standby=False)
    known = world.catalog.definitions()
    first = world.coordinator.process.spawn(control.apply([query], (), known, {}))
    second = world.coordinator.process.spawn(control.apply([query], (), known, {}))
    assert world.clock.run(world.clock.now + 60_000, lambda: first.done and second.done)
    outcomes: list[bool] = []

    async def note() -> None:
        outcomes.extend([await first.join(), await second.join()])

    took_ms(world, note())
    assert outcomes == [True, False]


def test_what_somebody_else_has_restored_is_not_restored_once_more(world: World) -> None:
    """It was lost when it was looked at. When the turn has come it runs: begun anew then, it would
    ask for what it has let go of."""
    source, control = world.plan.sources[0], world.coordinator.control
    site = next(name for name in world.plan.sites if name != source.site)
    query = a_query("late", source.name, site, standby=False)
    took_ms(world, control.apply([query], (), world.catalog.definitions(), {}))
    world.crash(site, BACK_MS)
    begun: list[Any] = []

    async def restored_meanwhile() -> None:
        async with control._turns.of(["late"]):
            while not (lost := await control.restorer.lost()):
                await world.coordinator.process.sleep(0.01)
            other = world.coordinator.process.spawn(control.restore())
            await world.coordinator.process.sleep(0.5)
            await control.restorer.restore(lost)
            begun.append(world.sites[site].tasks["late"])
        await other.join()

    took_ms(world, restored_meanwhile())
    assert world.sites[site].tasks["late"] is begun[0]
    world.clock.run(world.clock.now + SETTLED_MS, lambda: False)
    assert {state for state, _ in states(world).values()} <= {"running", "done"}
