"""Whether a primary is dead: how its standby takes the answers to its heartbeats."""

from __future__ import annotations

from enum import Enum


class Beat(Enum):
    ALIVE = "alive"
    SILENT = "silent"
    """No answer in time: it may be slow, or the way to it."""
    REFUSED = "refused"
    """Nobody listens there any more."""
    ABSENT = "absent"
    """The site answers and does not run the task: it was killed and has come back."""


class Detector:
    """Silence must last; the other signs of death are certain, and cost no waiting."""

    def __init__(self, missed: int) -> None:
        self._limit = missed
        self.missed = 0

    def heard(self, beat: Beat) -> bool:
        """True: the primary counts as dead. It may yet be only slow; its epoch is over anyway."""
        if beat is Beat.SILENT:
            self.missed += 1
        elif beat is Beat.ALIVE:
            self.missed = 0
        else:
            self.missed = self._limit
        return self.missed >= self._limit
