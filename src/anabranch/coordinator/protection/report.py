"""What is said of the tasks that may be taken over."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProtectionReport:
    """Who runs a task and who stands by, as an Assignment says it; why nobody does, and whether the
    standby could take over now."""

    site: str
    epoch: int
    standby: str | None
    claim: int
    stream: str
    problem: str
    protected: bool
