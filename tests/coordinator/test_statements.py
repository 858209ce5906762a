"""A coordinator that dies in the middle of a statement leaves the sites as the catalog says."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from itertools import count, takewhile
from random import Random
from typing import Any

import pytest

from anabranch.errors import TaskError
from anabranch.plan.catalog import AnyDef, QueryDef
from anabranch.plan.operators import Node, Port
from anabranch.plan.service_levels import Standby
from simulation import plan
from simulation.faults import COORDINATOR
from simulation.truths import past
from simulation.world import World

pytestmark = pytest.mark.filterwarnings(  # what the dead coordinator was about to begin
    "ignore::pytest.PytestUnraisableExceptionWarning", "ignore:.*was never awaited"
)
BACK_MS = 500
QUIET_MS = 15_000


class Dying:
    """Awaits a coroutine, and calls `die` when it has waited for the n-th time."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], at: int, die: Callable[[], None]):
        self._coroutine = coroutine
        self._left = at
        self._die = die

    def __await__(self) -> Generator[Any, Any, Any]:
        came = None
        while True:
            try:
                wait = self._coroutine.send(came)
            except StopIteration as end:
                return end.value
            self._left -= 1
            if self._left == 0:
                self._die()
            came = yield wait


def dies_in_apply(world: World, at: int) -> list[int]:
    """The coordinator does at the n-th await of the next statement; when, once it has."""
    control, apply, died = world.coordinator.control, world.coordinator.control.apply, []

    def die() -> None:
        died.append(world.clock.now)
        world.crash(COORDINATOR, BACK_MS)

    async def dying(*args: Any, **options: Any) -> bool:
        done: bool = await Dying(apply(*args, **options), at, die)
        return done

    control.apply = dying  # type: ignore[method-assign]
    return died


def running(world: World) -> dict[str, set[tuple[str, int]]]:
    """Site → what has begun there, and which creation of it. Standbys do not count."""
    found = {}
    for name, site in world.sites.items():
        report = site.report()
        primaries = [one for one in report.tasks if one.role == "primary"]
        primaries = [one for one in primaries if one.state != "waiting"]
        found[name] = {(one.stream, one.born) for one in report.sources}
        found[name] |= {(one.name, one.born) for one in primaries}
    return found


def by_the_catalog(world: World) -> dict[str, set[tuple[str, int]]]:
    from anabranch.coordinator.deploy.statements import _wanted

    known = world.catalog.definitions()
    wanted = _wanted(known.values(), known)
    return {name: set(wanted.get(name, {}).items()) for name in world.sites}


def quiet(world: World) -> None:
    """Soon, and then it stays so."""
    for until in range(world.clock.now, world.clock.now + QUIET_MS, 200):
        world.clock.run(until, lambda: False)
        if is_quiet(world):
            break
    world.clock.run(world.clock.now + 500, lambda: False)
    assert not world.catalog.intentions()
    assert running(world) == by_the_catalog(world)


def is_quiet(world: World) -> bool:
    settled = world.coordinator.process.alive and not world.catalog.intentions()
    return settled and running(world) == by_the_catalog(world)


def outputs_are_right(world: World) -> None:
    assert world.done, world.wrong
    assert not list(past(world))


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


@pytest.mark.parametrize("seed", [3, 14])
def test_a_coordinator_that_dies_at_any_await_of_the_first_statement(seed: int) -> None:
    """Its next life completes it or takes it back, and the user tries again: nothing runs twice,
    nothing is lost."""

    def died(at: int) -> bool:
        world = World(plan.draw(Random(seed)), Random(seed))
        died = dies_in_apply(world, at)
        assert world.clock.run(200_000, lambda: world.deployed)
        assert world.clock.run(world.clock.now + 200_000, lambda: world.done)
        quiet(world)
        outputs_are_right(world)
        world.close()
        return bool(died)

    assert sum(takewhile(bool, map(died, count(1)))) > 10


@pytest.mark.parametrize(
    ("statement", "standby"),
    [
        ("create", True),
        ("drop", True),
        ("another text", False),
        ("another text", True),
        ("drop and create others", False),
    ],
)
def test_a_coordinator_that_dies_at_any_await_of_a_later_statement(
    statement: str, standby: bool
) -> None:
    """It is done or not done; what a DROP and CREATE had dropped comes as it was created again."""

    def died(at: int) -> bool:
        world = World(plan.draw(Random(3)), Random(3))
        world.suffer(())
        assert world.clock.run(20_000, lambda: world.deployed)
        source = world.plan.sources[0].name
        first, second = [one for one in world.plan.sites if one.startswith("w")][:2]
        old = a_query("late", source, first, standby=standby)
        new = a_query("late", source, second, standby=standby)
        other = a_query("later", source, second, standby=standby)
        drops = [] if statement == "create" else ["late"]
        if drops:
            apply(world, [old], [])
        before = world.catalog.definitions()
        died = dies_in_apply(world, at)
        adds: dict[str, list[AnyDef]] = {"create": [new], "another text": [new], "drop": []}
        apply(world, adds.get(statement, [other]), drops)
        quiet(world)
        there = world.catalog.definitions()
        late = there.get("late")
        assert late is None or late == before.get("late") or late.site == second
        assert statement != "another text" or late
        assert statement != "drop and create others" or ("later" in there) == (late is None)
        assert world.clock.run(world.clock.now + 200_000, lambda: world.done)
        outputs_are_right(world)
        world.close()
        return bool(died)

    assert sum(takewhile(bool, map(died, count(1)))) > 3


@pytest.mark.parametrize(
    ("away", "again", "standby"),
    [
        ("stands still", True, False),
        ("stands still", False, True),
        ("is cut off", True, True),
        ("is cut off", True, False),
    ],
)
def test_a_site_that_was_away_stops_what_was_dropped_meanwhile(
    away: str, again: bool, standby: bool
) -> None:
    """Even if another query of that name has been created, which misses nothing by it."""
    world = World(plan.draw(Random(9)).unhurried(Random(9), 20), Random(9))
    world.suffer(())
    assert world.clock.run(20_000, lambda: world.deployed)
    source = world.plan.sources[0]
    first, second = [one for one in world.plan.sites if one.startswith("w")][:2]
    apply(world, [a_query("late", source.name, first, standby=standby)], [])
    world.clock.run(world.clock.now + 1_000, lambda: False)
    ghost = world.sites[first].tasks["late"]
    if away == "stands still":
        world.pause(first, 16_000)
    else:
        for one in (*world.plan.sites, COORDINATOR):
            if one != first:
                world.wires.cut(first, one, world.clock.now + 16_000)
    apply(world, [], ["late"])
    if again:
        apply(world, [a_query("late", source.name, second, standby=standby)], [])
        point = world.sites[second].tasks["late"].restart_point()
        begins = point.inputs[0] - point.output
    assert world.sites[first].tasks["late"] is ghost
    world.clock.run(world.clock.now + 17_000, lambda: False)
    assert world.sites[first].tasks.get("late") is not ghost
    quiet(world)
    assert world.clock.run(world.clock.now + 200_000, lambda: world.done)
    outputs_are_right(world)
    if again:
        late = world.sites[second].tasks["late"]
        world.clock.run(world.clock.now + 5_000, lambda: False)
        read = len(source.rows) - begins
        assert late.outlet
        assert late.outlet.last == read > 0
    world.close()


@pytest.mark.parametrize("is_read", [True, False])
def test_nobody_is_kept_tuples_for_whom_a_dead_coordinator_was_about_to_create(
    is_read: bool,
) -> None:
    """The producer was out of reach when that was taken back; others may read it or not."""
    world = World(plan.draw(Random(9)), Random(9))
    world.suffer(())
    assert world.clock.run(20_000, lambda: world.deployed)
    stream, where = world.plan.sources[0].name, world.plan.sources[0].site
    if not is_read:
        stream, where = "late", next(one for one in world.plan.sites if one.startswith("w"))
        apply(world, [a_query(stream, world.plan.sources[0].name, where, standby=False)], [])
    outlet = world.sites[where].service.outlets[stream]
    outlet.attach("never", born=77)
    outlet.attach("a program", lease=True)
    world.clock.run(world.clock.now + 3_000, lambda: False)
    assert "never" not in outlet.tasks()
    assert "a program" in outlet.leased
    world.close()


def test_a_query_that_is_dropped_while_it_is_to_move_does_not() -> None:
    world = World(plan.draw(Random(3)), Random(3))
    world.suffer(())
    assert world.clock.run(20_000, lambda: world.deployed)
    source = world.plan.sources[0].name
    first, second = [one for one in world.plan.sites if one.startswith("w")][:2]
    apply(world, [a_query("late", source, first, standby=False)], [])
    coordinator = world.coordinator
    moving = coordinator.process.spawn(coordinator.control.move("late", second))
    moving.heard = True
    apply(world, [], ["late"])
    assert world.clock.run(world.clock.now + 60_000, lambda: moving.done)
    with pytest.raises(TaskError, match="late was dropped"):
        moving.join().send(None)
    world.close()


def apply(world: World, add: list[AnyDef], drop: list[str]) -> None:
    control = world.coordinator.control
    known = world.catalog.definitions()
    spawned = world.coordinator.process.spawn(control.apply(add, drop, known, {}))
    alive = world.coordinator.process
    world.clock.run(world.clock.now + 60_000, lambda: spawned.done or not alive.alive)
