"""One run, from its seed to its verdict."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from anabranch.errors import AnabranchError
from anabranch.sim import faults, plan
from anabranch.sim.reference import first_difference
from anabranch.sim.world import Violation, World

DRAIN = 15_000
"""Milliseconds after the last fault within which everything must have arrived."""


@dataclass(frozen=True)
class Outcome:
    """`problem` is empty if all was well."""

    seed: int
    problem: str
    faults: int
    tuples: int
    """In the sinks."""
    ended: int
    """Virtual milliseconds."""
    events: int
    lines: list[str] = field(default_factory=list, compare=False)


def simulate(seed: int, *, trace: bool = False) -> Outcome:
    rng = Random(seed)
    drawn = plan.draw(rng)
    suffered = faults.draw(rng, drawn)
    lines: list[str] = []
    if trace:
        lines += _described(drawn, suffered)
    world = World(drawn, rng, lines if trace else None)
    world.suffer(suffered)
    problem = _run(world, suffered[-1].at + DRAIN)
    tuples = sum(len(world.written(sink.name)) for sink in drawn.sinks)
    now, events = world.clock.now, world.clock.events
    return Outcome(seed, problem, len(suffered), tuples, now, events, lines)


def _run(world: World, until: int) -> str:
    try:
        world.clock.run(until, lambda: world.done)
    except (Violation, AnabranchError, ValueError, AssertionError) as error:
        return f"at {world.clock.now}: {type(error).__name__}: {error}"
    for sink in world.plan.sinks:
        wanted = world.wanted[sink.inputs[0]]
        if difference := first_difference(world.written(sink.name), wanted):
            return f"at {world.clock.now}: sink {sink.name}: {difference}"
    return ""


def _described(drawn: plan.Plan, suffered: tuple[faults.Fault, ...]) -> list[str]:
    sources = [f"source {s.name} at {s.site}: {len(s.rows)} tuples" for s in drawn.sources]
    tasks = [f"task {t.name} at {drawn.placed[t.name]} reads {', '.join(t.inputs)}: {t.kind},"
             f" batches of {t.batch}" for t in drawn.tasks]  # fmt: skip
    return [*sources, *tasks, str(drawn.pace), *map(str, suffered)]
