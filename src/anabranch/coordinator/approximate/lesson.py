"""What is learnt about a query's keys from its results so far."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.approx.assign.problem import Workers
from anabranch.approx.calibration import ALL_PARTS
from anabranch.approx.gaussian import Floats
from anabranch.approx.model import Model
from anabranch.approx.plan import Plan, Promise, judged, learnt
from anabranch.coordinator.approximate.results import Key


@dataclass(frozen=True)
class Lesson:
    """`history` has the windows up to the one that ends at `newest`, as far as they are here; none
    that ends before `oldest` is to be learnt from. `workers` are the columns of each worker."""

    promise: Promise
    keys: list[Key]
    workers: Workers
    oldest: int
    newest: int
    history: Floats

    def plan(self, model: Model | None = None) -> Plan:
        """With bounds from rehearsals of `history`. `model`, if it was learnt from more."""
        found, rehearsal, weight = learnt(self.history, self.promise, ALL_PARTS)
        return judged(model or found, rehearsal, weight, self.promise, self.workers, ALL_PARTS)
