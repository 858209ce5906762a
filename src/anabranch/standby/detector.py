"""Whether a primary is dead: how often its standby asks, how it takes the answers, which limits
it can never keep, and when it puts off its work.

Under load a standby would repeat all work of its primary, and most of it in vain: a moment later
the primary's results are safe and nobody needs the tuples any more. So it lets much work wait a
while, and begins after what was released meanwhile. Little work is done at once, because then a
take-over finds nothing left to do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from anabranch.plan.service_levels import Standby, exact_duration, percentage
from anabranch.units import show_duration

LEAST_S = 0.1
"""Beats are not closer than that: a pause of a collector is no death."""
SHARE = 0.75
"""Of a RECOVERY, for noticing that a machine has gone silent. The rest is for taking over."""
ALIVE_LEAVES = 0.5
"""An answer takes back this part of the silence before it: a link that comes and goes, and is away
for most of the time, is as good as cut."""


class Beat(Enum):
    ALIVE = "alive"
    SILENT = "silent"
    """No answer in time: it may be slow, or the way to it."""
    REFUSED = "refused"
    """Nobody listens there any more."""
    ABSENT = "absent"
    """The site answers and does not run the task: it was killed and has come back."""


@dataclass(frozen=True, slots=True)
class Cadence:
    """A beat is sent every `every_s`, whether or not the last one was answered. A death is `missed`
    beats in a row without an answer.
    """

    every_s: float
    missed: int

    @property
    def refused_s(self) -> float:
        """The longest time until a process's death is noticed if its machine goes on and refuses
        connections.
        """
        return self.every_s

    @property
    def silent_s(self) -> float:
        """The longest time until it is noticed that a machine, or the way to it, has vanished: it
        may have answered a beat just before.
        """
        return self.every_s * (self.missed + 1)


def cadence(heartbeat_s: float, missed: int, recovery_s: float | None = None) -> Cadence:
    """The cluster's cadence, or a faster one if a RECOVERY has to hold."""
    if recovery_s is None:
        return Cadence(heartbeat_s, missed)
    wanted = SHARE * recovery_s / (missed + 1)
    return Cadence(min(heartbeat_s, max(LEAST_S, wanted)), missed)


class Detector:
    """Silence must last to count as death; the other signs are certain and need no waiting."""

    def __init__(self, missed: int) -> None:
        self._limit = missed
        self.missed = 0.0

    def heard(self, beat: Beat) -> bool:
        """Takes the answer to a beat. True means that the primary counts as dead. It may only be
        slow, but its epoch is over anyway.
        """
        if beat is Beat.SILENT:
            self.missed += 1
        elif beat is Beat.ALIVE:
            self.missed = self.missed * ALIVE_LEAVES if self.missed >= 1 else 0.0
        else:
            self.missed = self._limit
        return self.missed >= self._limit


def impossible(standby: Standby, heartbeat_us: int, missed: int) -> tuple[str, str] | None:
    """The limit that cannot hold and the nearest that can; None if it depends on the load.

    A death is noticed up to one beat later, whatever the batch. With a batch of 1 nothing is
    released before it is shipped, so every tuple is sent to the standby.
    """
    beats = cadence_of(standby, heartbeat_us, missed)
    if standby.recovery_us is not None and standby.recovery_us < round(beats.refused_s * 1e6):
        wanted, least = exact_duration(standby.recovery_us), _shown(beats.refused_s)
        return (
            f"RECOVERY {wanted} cannot hold: that a site has died is noticed up to {least} later",
            f"The least is RECOVERY {least}; heartbeat_interval in cluster.toml makes it less.",
        )
    overhead = 1.0 if standby.overhead is None else standby.overhead
    if standby.batch == 1 and overhead < 1 and not standby.compress:
        return (
            f"OVERHEAD {percentage(overhead)} cannot hold with BATCH 1, which sends"
            " every tuple to the standby",
            "Leave BATCH out, and it is chosen so that the limit holds; or OVERHEAD 100%.",
        )
    return None


def reservation(standby: Standby, heartbeat_us: int, missed: int) -> str:
    """A warning about a RECOVERY that holds if a process dies, but not if its machine falls silent;
    otherwise empty.
    """
    silent_s = cadence_of(standby, heartbeat_us, missed).silent_s
    if standby.recovery_us is None or standby.recovery_us >= round(silent_s * 1e6):
        return ""
    return (
        f"RECOVERY {exact_duration(standby.recovery_us)} holds only if its process dies; that its"
        f" machine or the way to it has gone is noticed within {_shown(silent_s)}"
    )


def noticed(standby: Standby, heartbeat_us: int, missed: int) -> str:
    """The text for EXPLAIN: how soon both kinds of death are noticed."""
    beats = cadence_of(standby, heartbeat_us, missed)
    return (
        f"noticed within {_shown(beats.refused_s)} if the process dies,"
        f" {_shown(beats.silent_s)} if its machine does"
    )


def cadence_of(standby: Standby, heartbeat_us: int, missed: int) -> Cadence:
    recovery_s = None if standby.recovery_us is None else standby.recovery_us / 1e6
    return cadence(heartbeat_us / 1e6, missed, recovery_s)


def _shown(seconds: float) -> str:
    return show_duration(seconds * 1e6)


LITTLE_BYTES = 1 << 20
PATIENCE_S = 2.0


class Patience:
    """The caller gives times, in seconds of any one clock."""

    def __init__(self, patience_s: float = PATIENCE_S, little_bytes: int = LITTLE_BYTES) -> None:
        self._patience_s = patience_s
        self._little = little_bytes
        self._taken: tuple[int, ...] = ()
        self._since = math.inf

    def waits(self, now: float, taken: tuple[int, ...], waiting_bytes: int) -> bool:
        """Whether the standby should still wait, when `waiting_bytes` lie after what was
        `taken`.
        """
        if waiting_bytes < self._little:
            self._since = math.inf
            return False
        if taken != self._taken:
            self._taken, self._since = taken, now
        self._since = min(self._since, now)
        return now < self._since + self._patience_s
