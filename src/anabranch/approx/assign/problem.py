"""The measure of an assignment: equation (8) of the approx paper, and more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy import special

from anabranch.approx.gaussian import Floats, lost_covariance, normal_quantile, tolerated_variance

Workers = list[list[int]]
"""The keys of each worker, by their indices."""


@dataclass(frozen=True)
class Problem:
    precision: Floats
    tolerated: Floats
    """By key: the conditional variance with which its reliability is just the confidence."""
    confidence: float
    capacities: tuple[int, ...]
    """Of each worker, in keys; together they hold all."""
    failures: int = 1
    """So many workers may be lost at the same time."""
    previous: Workers | None = None
    """What runs now. Keys that are in none of its lists are new."""
    moves: int | None = None
    """Of the keys in `previous`, at most so many change their worker."""

    @property
    def keys(self) -> int:
        return len(self.precision)

    def reliability(self, ratio: float | Floats) -> Floats:
        """R (3), from the ratio of a key's variance to the tolerated one."""
        z = normal_quantile(self.confidence)
        return np.asarray(special.erf(z / np.sqrt(2 * np.maximum(ratio, 1e-300))))

    def ratio(self, lost: Sequence[int], judged: Sequence[int] | None = None) -> float:
        """The worst ratio of `judged` (default: all lost keys) if `lost` are lost: above 1 it is
        not estimable.
        """
        if not lost:
            return 0.0
        ratios = np.diag(lost_covariance(self.precision, lost)) / self.tolerated[list(lost)]
        wanted = set(lost if judged is None else judged)
        return float(max(r for key, r in zip(lost, ratios, strict=True) if key in wanted))

    def alone(self) -> Floats:
        """For each key the ratio if it alone is lost. No assignment makes it smaller."""
        return np.asarray(1 / np.diag(self.precision) / self.tolerated)

    def estimable(self, workers: Workers) -> list[bool]:
        """R(A_i) ≥ 1 − δ (7), whichever other workers are lost with it."""
        return [self._estimable(workers, i) for i in range(len(workers))]

    def _estimable(self, workers: Workers, i: int) -> bool:
        if not workers[i]:
            return True
        rest = [w for j, w in enumerate(workers) if j != i and w]
        for also in combinations(rest, min(self.failures - 1, len(rest))):
            lost = [*workers[i], *(key for keys in also for key in keys)]
            if self.ratio(lost, workers[i]) > 1 + 1e-9:
                return False
        return True


def uniform(
    precision: Floats, epsilon: float, confidence: float, workers: int, *, failures: int = 1
) -> Problem:
    """The paper's problem: one ε, keys spread evenly; the first n mod m workers take one more."""
    return Problem(
        precision,
        np.full(len(precision), tolerated_variance(epsilon, confidence)),
        confidence,
        even(len(precision), workers),
        failures,
    )


def even(keys: int, workers: int) -> tuple[int, ...]:
    share, more = divmod(keys, workers)
    return tuple(share + (i < more) for i in range(workers))
