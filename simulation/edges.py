"""What goes wrong at the edges, drawn from the seed: links that fail in one direction or flap,
hosts that vanish without a word, pauses longer than any patience."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from simulation.faults import COORDINATOR, Fault, Pause
from simulation.plan import Plan

SHARE = 0.5
"""So many runs have some of it."""


@dataclass(frozen=True, slots=True)
class Deaf:
    """What `sender` sends does not reach `receiver`, though it hears it."""

    at: int
    sender: str
    receiver: str
    lasts: int


@dataclass(frozen=True, slots=True)
class Flap:
    """The two lose sight of each other again and again, for `down` of every `period`."""

    at: int
    one: str
    other: str
    lasts: int
    period: int
    down: int
    one_way: bool


@dataclass(frozen=True, slots=True)
class Vanish:
    """A machine is off the network and without power at once: nobody is told that a connection
    ended, and nothing refuses. It is back after `lasts`."""

    at: int
    site: str
    lasts: int


@dataclass(frozen=True, slots=True)
class CrashAtStep:
    """The coordinator's process dies when it has taken so many more steps: between any two awaits
    of whatever it is doing."""

    at: int
    steps: int
    lasts: int


@dataclass(frozen=True, slots=True)
class Full:
    """Nothing can be written to a site's disk."""

    at: int
    site: str
    lasts: int


@dataclass(frozen=True, slots=True)
class Trouble:
    """A share of what blocks fails in a process: by an error of the machine's, before it has done
    anything or after."""

    at: int
    process: str
    share: float
    lasts: int


Edge = Deaf | Flap | Vanish | CrashAtStep | Full | Trouble


def draw(rng: Random, plan: Plan) -> tuple[Edge | Fault, ...]:
    """None in many runs; else a few, close together or not."""
    if rng.random() >= SHARE:
        return ()
    found: list[Edge | Fault] = []
    at = rng.randint(100, plan.stream_ms)
    for _ in range(rng.choice((1, 1, 2, 3))):
        found.append(_one(rng, plan, at))
        at += rng.choice((0, rng.randint(0, 300), rng.randint(0, 1500)))
    return tuple(found)


def draw_crashes(rng: Random, plan: Plan) -> tuple[Edge, ...]:
    """Of the coordinator, while something is deployed or not; none in many runs."""
    if rng.random() >= SHARE:
        return ()
    count, last = rng.choice((1, 1, 2, 4)), plan.stream_ms
    return tuple(
        CrashAtStep(rng.randint(0, last), int(2 ** rng.uniform(0, 11)), rng.randint(20, 1500))
        for _ in range(count)
    )


def draw_machines(rng: Random, plan: Plan) -> tuple[Edge, ...]:
    """Disks that are full and calls that fail; none in many runs."""
    if rng.random() >= SHARE:
        return ()
    found: list[Edge] = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        at, lasts = rng.randint(0, plan.stream_ms), rng.randint(50, 4000)
        if rng.random() < 0.5:
            found.append(Full(at, rng.choice(plan.sites), lasts))
        else:
            share = rng.choice((0.05, 0.3, 1.0))
            found.append(Trouble(at, rng.choice((*plan.sites, COORDINATOR)), share, lasts))
    return tuple(found)


def _one(rng: Random, plan: Plan, at: int) -> Edge | Fault:
    drawn = rng.random()
    one, other = rng.sample((*plan.sites, COORDINATOR), 2)
    if drawn < 0.35:
        return Deaf(at, one, other, rng.randint(100, 2500))
    if drawn < 0.6:
        period = rng.choice((60, 200, 700))
        down = rng.randint(period // 4, period)
        return Flap(at, one, other, rng.randint(500, 4000), period, down, rng.random() < 0.5)
    if drawn < 0.9:
        return Vanish(at, rng.choice(plan.sites), rng.randint(300, 4000))
    return Pause(at, rng.choice((*plan.sites, COORDINATOR)), rng.randint(2_000, 12_000))
