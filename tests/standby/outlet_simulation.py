"""The outlet's rule for a standby, tuple by tuple: the reference the cost model is held against.

Shares no code and no formula with the model: it knows when chunks are appended, when acks come and
up to where each releases, and applies the rule `pending = last − max(shipped, released)`.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from dataclasses import dataclass, field

from anabranch.standby.cost import Load

_BEFORE = 10.0
"""Seconds that run before anything is counted."""


@dataclass
class Seen:
    shipped: int = 0
    appended: int = 0
    pending: list[int] = field(default_factory=list)
    """At random moments."""

    @property
    def overhead(self) -> float:
        return self.shipped / self.appended


def simulate(load: Load, b: int, seed: int, *, phases: int = 12) -> Seen:
    """Over `phases` phases of the producer, each long enough for a batch more or less not to
    matter."""
    rng = random.Random(seed)
    acks = max(100, int(30 * b / (load.rate * load.ack_interval_s)))
    seen = Seen()
    for phase in range(phases):
        _run(load, b, (phase + rng.random()) / phases, rng, acks * load.ack_interval_s, seen)
    return seen


def _run(load: Load, b: int, phase: float, rng: random.Random, end: float, seen: Seen) -> None:
    chunk, every = round(load.chunk), load.chunk / load.rate
    appends = [(k + phase) * every - _BEFORE for k in range(int((end + _BEFORE) / every))]
    events = [(time, "append", 0.0) for time in appends]
    events += [(rng.uniform(0, end), "look", 0.0) for _ in range(100)]
    for k in range(int((end + _BEFORE) / load.ack_interval_s) + 2):
        lag = load.lag_s + rng.uniform(-1, 1) * load.lag_spread_s
        events.append((k * load.ack_interval_s - _BEFORE, "ack", max(0.0, lag)))
    last = shipped = released = 0
    for time, what, lag in sorted(events):
        behind = max(shipped, released)
        if what == "look":
            seen.pending.append(last - behind)
        elif what == "ack":
            old_enough = bisect_right(appends, time - lag + 1e-12) * chunk
            released = max(released, min(last, old_enough) - round(load.window))
        else:
            last += chunk
            now = (last - behind) // b * b
            shipped = behind + now if now else shipped
            if time >= 0:
                seen.shipped, seen.appended = seen.shipped + now, seen.appended + chunk
