"""Decides when the state of a task is worth keeping: the cost of a restart, against the cost of
keeping it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

LEAST_S = 1.0
SHARE = 0.05
"""Of the time that snapshots may take at most."""
REPLAY_S = 2.0
"""What a replay may take where nobody has said how soon a task must have recovered."""
OF_RECOVERY = 0.25
"""The part of `RECOVERY` that the replay may take."""


@dataclass(frozen=True, slots=True)
class Held:
    """The input that a restart would be given again, and that upstream keeps for it."""

    rows: int
    nbytes: float
    replay_s: float


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of that there may be before the state is kept."""

    nbytes: float
    replay_s: float = REPLAY_S
    least_s: float = LEAST_S
    """Between two snapshots."""

    def within(self, recovery_s: float | None) -> Limits:
        """The limits of a task that must have recovered within this time."""
        return self if recovery_s is None else replace(self, replay_s=OF_RECOVERY * recovery_s)


def why_now(held: Held, limits: Limits, since_s: float, last_took_s: float) -> str | None:
    """Why the state should be kept now, `since_s` after the last time, which took `last_took_s`;
    None if it should not."""
    if since_s < max(limits.least_s, last_took_s / SHARE):
        return None
    if held.nbytes > limits.nbytes:
        return "bytes"
    if held.replay_s > limits.replay_s:
        return "replay"
    return None
