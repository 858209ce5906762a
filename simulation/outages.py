"""What goes wrong with what sites keep and with what they read, drawn from the seed."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from simulation.edges import Edge, Full
from simulation.faults import Crash, Fault
from simulation.plan import Plan

SHARE = 0.8
"""So many runs have some of it."""
CHANGES = ("compact", "edit", "retain")


@dataclass(frozen=True, slots=True)
class ClockSet:
    """The clock of a machine is set: it is ahead by so much from now on, or behind. With `lasts`
    its process dies as well, and comes back to that clock."""

    at: int
    site: str
    ahead: int
    lasts: int


@dataclass(frozen=True, slots=True)
class PowerCut:
    """A machine loses its power, and what was not synced."""

    at: int
    site: str
    lasts: int


@dataclass(frozen=True, slots=True)
class DiesWriting:
    """A process dies in the middle of the write to its disk that comes after so many others."""

    at: int
    site: str
    writes: int
    lasts: int


@dataclass(frozen=True, slots=True)
class Older:
    """The process of a site dies, and finds its folder as it was a while before. Not if what it
    read would not come again at the same positions: nobody may have heard of what is gone."""

    at: int
    site: str
    before: int
    lasts: int


@dataclass(frozen=True, slots=True)
class TopicAway:
    """What a source reads from does not answer."""

    at: int
    stream: str
    lasts: int


@dataclass(frozen=True, slots=True)
class TopicChanged:
    """Records that were read are compacted, edited or deleted, and then the reader dies."""

    at: int
    stream: str
    how: str
    lasts: int


Outage = ClockSet | PowerCut | DiesWriting | Older | TopicAway | TopicChanged


def draw(rng: Random, plan: Plan) -> tuple[Outage | Edge | Fault, ...]:
    """None in some runs."""
    if rng.random() >= SHARE:
        return ()
    found: list[Outage | Edge | Fault] = []
    for _ in range(rng.choice((1, 2, 3))):
        found += _some(rng, plan)
    return tuple(sorted(found, key=lambda one: one.at))


def _some(rng: Random, plan: Plan) -> list[Outage | Edge | Fault]:
    at, source = rng.randint(50, plan.stream_ms), rng.choice(plan.sources)
    site = source.site if rng.random() < 0.8 else rng.choice(plan.sites)
    lasts = rng.choice((rng.randint(20, 300), rng.randint(300, 3000)))
    drawn = rng.random()
    if drawn < 0.2:
        return [DiesWriting(at, site, rng.randint(1, 20), lasts)]
    if drawn < 0.45:
        ahead = rng.choice((-7_000, -7_000, -600, 600, 7_000))
        return [ClockSet(at, source.site, ahead, lasts if rng.random() < 0.8 else 0)]
    if drawn < 0.55:
        return [PowerCut(at, site, lasts)]
    if drawn < 0.65:
        full = Full(at, site, rng.randint(20, 1000))
        return [full, Crash(at + rng.randint(0, 2000), site, lasts)]
    if drawn < 0.75:
        return [TopicAway(at, source.name, lasts)]
    if drawn < 0.88 or source.arrival:
        return [TopicChanged(at, source.name, rng.choice(CHANGES), lasts)]
    return [Older(at, source.site, rng.randint(1, 800), lasts)]
