"""What goes wrong, drawn from the seed: crashes, pauses, cuts, moves, standbys that come and go;
often several at once."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from simulation.plan import Plan

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
    """A task is to run at another site, or, without one, its standby is asked to take over."""

    at: int
    task: str
    site: str | None = None


@dataclass(frozen=True, slots=True)
class Strike:
    """A crash or pause of whoever runs a task then, or stands by for it, wherever that is."""

    at: int
    task: str
    role: str
    lasts: int
    pauses: bool


@dataclass(frozen=True, slots=True)
class MoveAll:
    """Tasks are to be elsewhere, all at once, as when everything is placed anew."""

    at: int
    sites: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Change:
    """From now on the sites are far from each other, by `far` milliseconds, but for `near`."""

    at: int
    near: str
    far: int


@dataclass(frozen=True, slots=True)
class Unprotected:
    """A task does without a standby for so long."""

    at: int
    task: str
    lasts: int


@dataclass(frozen=True, slots=True)
class Part:
    """Whoever runs a task then and whoever stands by for it lose sight of each other, and perhaps
    the first of the coordinator: nothing has died, and the second takes over."""

    at: int
    task: str
    lasts: int
    alone: bool


Fault = Crash | Pause | Cut | Move | MoveAll | Change | Strike | Unprotected | Part


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


def draw_moves(rng: Random, plan: Plan, count: int) -> tuple[Fault, ...]:
    """Nothing goes wrong: so many tasks move, one by one or several at once, while tuples pass."""
    names = [task.name for task in plan.tasks]
    moves: list[Fault] = []
    left = count
    while left:
        at = rng.randint(100, plan.stream_ms)
        several = rng.sample(names, rng.randint(1, min(len(names), left)))
        left -= len(several)
        if rng.random() < 0.7:
            moves.append(MoveAll(at, tuple((one, rng.choice(plan.sites)) for one in several)))
        else:
            moves += [Move(at + rng.choice((0, 0, rng.randint(0, 50))), one) for one in several]
    return tuple(sorted(moves, key=lambda one: one.at))


def draw_changes(rng: Random, plan: Plan, count: int) -> tuple[Fault, ...]:
    """Nothing goes wrong, but which site is near changes now and then."""
    every = plan.stream_ms // count
    return tuple(
        Change(1 + n * every, rng.choice(plan.sites), rng.choice((40, 120))) for n in range(count)
    )


def draw_standbys(rng: Random, plan: Plan, count: int) -> tuple[Fault, ...]:
    """Standbys come and go, and those who run tasks die, for a while."""
    names = [task.name for task in plan.tasks]
    faults: list[Fault] = []
    while len(faults) < count:
        at, name = rng.randint(100, plan.stream_ms), rng.choice(names)
        faults.append(Unprotected(at, name, rng.choice((rng.randint(0, 60), rng.randint(60, 900)))))
        if rng.random() < 0.5:
            role = rng.choice(("primary", "primary", "standby"))
            faults.append(Strike(at + rng.randint(0, 400), name, role, rng.randint(50, 900), False))
    return tuple(sorted(faults, key=lambda one: one.at))


def _one(rng: Random, plan: Plan, at: int, forever: set[str]) -> Fault:
    names = [task.name for task in plan.tasks]
    draw = rng.random()
    if draw < 0.1:
        return Part(at, rng.choice(names), rng.randint(400, 2500), rng.random() < 0.5)
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
    where = rng.choice(plan.sites) if rng.random() < 0.5 else None
    return Move(at, rng.choice(names), where)
