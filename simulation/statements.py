"""What users ask for while all else happens, drawn from the seed: queries that are dropped and
created again, often as others of the same name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from simulation.plan import Plan, TaskPlan, draw_kind

SHARE = 0.5
"""So many runs have some of it."""


@dataclass(frozen=True, slots=True)
class Script:
    """What is to be of some queries: each as it says, or gone. `must`: whoever asks tries until it
    is so; else perhaps not."""

    at: int
    wanted: tuple[tuple[str, TaskPlan | None], ...]
    """In the order in which they feed each other."""
    must: bool = True


def first_script(plan: Plan) -> Script:
    return Script(0, tuple((task.name, task) for task in plan.tasks))


def draw(rng: Random, plan: Plan) -> tuple[Script, ...]:
    """None in many runs."""
    if rng.random() >= SHARE:
        return ()
    found: list[Script] = []
    at = rng.randint(50, plan.stream_ms)
    for _ in range(rng.choice((1, 1, 2, 3))):
        found += _recreate(rng, plan, at)
        at += rng.choice((0, rng.randint(0, 300), rng.randint(0, 1500)))
    return tuple(sorted(found, key=lambda one: one.at))


def _recreate(rng: Random, plan: Plan, at: int) -> list[Script]:
    """A query goes, with those that read it; it comes back as another, in the same script or a
    later one, or never."""
    chosen = rng.choice(plan.tasks)
    gone = readers(plan, chosen.name)
    drop = tuple((one.name, None) for one in gone)
    other = replace(chosen, kind=draw_kind(rng, len(chosen.inputs)))
    create = tuple((one.name, other if one is chosen else one) for one in gone)
    must, drawn = rng.random() < 0.7, rng.random()
    if drawn < 0.6:
        return [Script(at, create, must)]
    if drawn < 0.85:
        return [Script(at, drop, must), Script(at + rng.randint(1, 1500), create, must)]
    return [Script(at, drop, must)]


def readers(plan: Plan, query: str) -> list[TaskPlan]:
    """It and all behind it."""
    names, found = {query}, []
    for task in plan.tasks:
        if task.name == query or names & set(task.inputs):
            names.add(task.name)
            found.append(task)
    return found
