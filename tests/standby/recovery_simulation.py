"""A primary's death and its standby's take-over, event by event, for the cost model to be held to.

Shares no code and no formula with the model: it appends chunks, ships, acknowledges, runs instances
one after another, kills the primary, and waits until the standby has what that had been sent.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from dataclasses import dataclass, field

from anabranch.standby.cost import Load

_BEFORE = 3.0
"""Seconds of health before the death, at least."""


@dataclass
class Standby:
    """Takes all that waits into one instance."""

    load: Load
    free_at: float = 0.0
    processed: int = 0
    inbox: list[tuple[float, int, int]] = field(default_factory=list)
    """When it arrives, the last position of it, how many tuples."""

    def run(self, until: float) -> None:
        """All instances that begin before `until`."""
        while self.inbox:
            start = max(self.free_at, self.inbox[0][0])
            if start >= until:
                return
            taken = [one for one in self.inbox if one[0] <= start]
            del self.inbox[: len(taken)]
            rows = sum(one[2] for one in taken)
            self.free_at = start + self.load.fixed_s + self.load.per_tuple_s * rows
            self.processed = taken[-1][1]


def recovery_s(load: Load, b: int, rng: random.Random) -> float:
    """From a death at a random moment until the standby rules and has caught up."""
    chunk, every = round(load.chunk), load.chunk / load.rate
    death = _BEFORE + rng.uniform(0, 2)
    takeover = death + (load.missed - 1 + rng.random()) * load.heartbeat_s + 3 * load.rtt_s
    offset = rng.random() * every
    appends = [k * every + offset for k in range(int(takeover / every) + 1)]
    events = [(time, "append", 0.0) for time in appends if time < takeover]
    begun = rng.random() * load.ack_interval_s
    for k in range(int(death / load.ack_interval_s) + 1):
        lag = max(0.0, load.lag_s + rng.uniform(-1, 1) * load.lag_spread_s)
        events.append((begun + k * load.ack_interval_s, "ack", lag))
    standby = Standby(load)
    last = shipped = released = sent = 0
    for time, what, lag in sorted(events):
        behind = max(shipped, released)
        if what == "ack":
            if time < death:
                due = bisect_right(appends, time - lag) * chunk - round(load.window)
                released = max(released, min(last, due))
            continue
        last += chunk
        if time < death:
            sent = last
        if now := (last - behind) // b * b:
            shipped = behind + now
            travel = now * load.travel_s
            standby.inbox.append((time + travel, shipped, now))
    behind = max(shipped, released)
    if last > behind:
        travel = (last - behind) * load.travel_s
        standby.inbox.append((takeover + travel, last, last - behind))
    needed = sent if sent > released else 0
    while standby.processed < needed:
        assert standby.inbox
        standby.run(max(standby.free_at, standby.inbox[0][0]) + 1e-9)
    return max(takeover, standby.free_at if needed else 0.0) - death
