"""Any tasks move, several at once, and by themselves when the network changes, while tuples pass:
nothing is lost, repeated or out of order."""

from __future__ import annotations

from random import Random

from anabranch.plan.catalog import QueryDef
from simulation.faults import Change
from simulation.operators import Join
from simulation.plan import Pace, Plan, SinkPlan, SourceSpec, TaskPlan
from simulation.run import simulate
from simulation.world import World

MOVES = 10
WANTED = 100
STREAM_MS = 20_000


def test_a_hundred_random_moves() -> None:
    moved = 0
    for seed in range(1, 40):
        outcome = simulate(seed, moves=MOVES)
        assert not outcome.problem, (seed, outcome.problem)
        moved += outcome.moved
        if moved >= WANTED:
            return
    raise AssertionError(f"only {moved} moves in all runs")


def test_what_is_placed_anew_while_the_network_changes() -> None:
    """Queries with and without standbys; the standbys follow."""
    moved = standbys = 0
    for seed in range(1, 40):
        outcome = simulate(seed, trace=True, changes=4)
        assert not outcome.problem, (seed, outcome.problem)
        moved += outcome.moved
        standbys += sum("the standby of" in line for line in outcome.lines)
        if moved >= 30 and standbys:
            return
    raise AssertionError(f"only {moved} moves, {standbys} of standbys")


def scenario() -> Plan:
    """Two rooms and a centre, and two sites in between that may be near to all."""
    times = range(0, STREAM_MS, 100)
    sources = tuple(
        SourceSpec(
            f"s{n}", f"room{n}", tuple((at, at % 7) for at in times), tuple(times), tuple(times)
        )
        for n in (1, 2)
    )
    return Plan(
        sources=sources,
        tasks=(TaskPlan("t1", ("s1", "s2"), Join((200, 200), 3)),),
        sinks=(SinkPlan("t1", "centre"),),
        sites=("room1", "room2", "centre", "w1", "w2"),
        placed={"t1": "centre"},
        pace=Pace(delay=(1, 3), ack=100, work=2, queue_bytes=600_000),
        stream_ms=STREAM_MS,
        replan_ms=2_000,
    )


def test_a_query_follows_the_network_by_itself_and_its_standby_follows_too() -> None:
    world = World(scenario(), Random(1))
    world.suffer([Change(1, "w1", 60), Change(STREAM_MS // 2, "w2", 60)])
    found = []
    for until in (STREAM_MS // 2, STREAM_MS):
        world.clock.run(until, lambda: False)
        query = world.catalog.definitions()["t1"]
        assert isinstance(query, QueryDef)
        found.append(query.site)
        standby = world.coordinator.control.protector.stands_by("t1")
        assert standby not in (None, query.site)
    assert found == ["w1", "w2"]
    assert world.clock.run(2 * STREAM_MS, lambda: world.done), world.wrong
    world.close()
