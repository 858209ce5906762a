"""Decides whether a primary is dead: how often its standby asks, and how it takes the answers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

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
