"""What goes wrong, drawn from the seed: crashes, pauses, cuts and moves, often several at once."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from anabranch.sim.plan import Plan

COORDINATOR = "coordinator"


@dataclass(frozen=True, slots=True)
class Crash:
    """Of the process of a site; it is back after `lasts`, or never."""

    at: int
    site: str
    lasts: int | None


@dataclass(frozen=True, slots=True)
class Pause:
    """The process stands still and then goes on as if nothing had happened."""

    at: int
    site: str
    lasts: int


@dataclass(frozen=True, slots=True)
class Cut:
    at: int
    one: str
    other: str
    lasts: int


@dataclass(frozen=True, slots=True)
class Move:
    """The standby of a task, wherever it is then, is asked to take over."""

    at: int
    task: str


@dataclass(frozen=True, slots=True)
class Strike:
    """A crash or pause of whoever runs a task then, or stands by for it, wherever that is."""

    at: int
    task: str
    role: str
    lasts: int
    pauses: bool


Fault = Crash | Pause | Cut | Move | Strike


def draw(rng: Random, plan: Plan) -> tuple[Fault, ...]:
    """Faults come alone or in clusters, the second while the system recovers from the first."""
    faults: list[Fault] = []
    forever = {rng.choice(plan.sites)} - plan.pinned if rng.random() < 0.15 else set()
    for _ in range(rng.choice((1, 1, 2, 2, 3))):
        at = rng.randint(100, plan.stream_ms)
        for _ in range(rng.choice((1, 1, 2, 2, 3, 4))):
            faults.append(_one(rng, plan, at, forever))
            at += rng.choice((0, rng.randint(0, 100), rng.randint(0, 600)))
    return tuple(sorted(faults, key=lambda one: one.at))


def _one(rng: Random, plan: Plan, at: int, forever: set[str]) -> Fault:
    names = [task.name for task in plan.tasks if task.kind]
    draw = rng.random()
    if draw < 0.45:
        role = rng.choice(("primary", "primary", "standby", "both"))
        lasts = rng.choice((rng.randint(20, 300), rng.randint(300, 1500)))
        return Strike(at, rng.choice(names), role, lasts, rng.random() < 0.4)
    if draw < 0.6:
        site = rng.choice(plan.sites)
        return Crash(at, site, None if site in forever else rng.randint(50, 1500))
    if draw < 0.7:
        hosts = (*plan.sites, COORDINATOR) if rng.random() < 0.3 else plan.sites
        return Pause(at, rng.choice(hosts), rng.randint(200, 1500))
    if draw < 0.73:
        return Crash(at, COORDINATOR, rng.randint(100, 1500))
    if draw < 0.9:
        one, other = rng.sample((*plan.sites, COORDINATOR), 2)
        return Cut(at, one, other, rng.randint(100, 1500))
    return Move(at, rng.choice(names))
