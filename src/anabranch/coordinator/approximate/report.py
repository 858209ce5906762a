"""What is said of approximate queries."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """How many keys a worker has, how far off estimates of them are at most, with the query's
    confidence, how it is protected and why so, and how many of its windows are to be estimated
    still. It has `drifted` if estimates have been off more often of late than was promised."""

    query: str
    site: str
    keys: int
    bound: float | None
    estimable: bool
    protection: str
    why: str
    drifted: bool
    damaged: int


@dataclass(frozen=True, slots=True)
class ApproximationReport:
    """What was asked for, the version of the model, the windows that it was learnt from and what a
    new one weighs in it, and how many results were estimated so far."""

    within: float
    confidence: float
    workers: tuple[WorkerReport, ...]
    model: int
    learnt_from: int
    refresh: float | None
    estimated: int
    recovering: bool
    problem: str = ""
