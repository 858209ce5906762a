"""What an assignment is judged by: equation (8) of the approx paper and what goes beyond it,
kept up to date for workers that grow or change.

C = inv(P_AA) of a worker's keys A is their covariance given all other keys. A key that joins or
leaves changes it by a matrix of rank one, so no matrix of an assignment is ever inverted again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy import special

from anabranch.approx.gaussian import (
    Floats,
    Indices,
    lost_covariance,
    normal_quantile,
    tolerated_variance,
)

Workers = list[list[int]]
"""The keys of each worker, by their indices."""


@dataclass(frozen=True)
class AssignmentProblem:
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
) -> AssignmentProblem:
    """The paper's problem: one ε, keys spread evenly; the first n mod m workers take one more."""
    return AssignmentProblem(
        precision,
        np.full(len(precision), tolerated_variance(epsilon, confidence)),
        confidence,
        even(len(precision), workers),
        failures,
    )


def even(keys: int, workers: int) -> tuple[int, ...]:
    share, more = divmod(keys, workers)
    return tuple(share + (i < more) for i in range(workers))


class WorkerLoad:
    """One worker's keys."""

    def __init__(self, problem: AssignmentProblem, keys: Sequence[int]) -> None:
        self.problem = problem
        self.keys = list(keys)
        self.lost = lost_covariance(problem.precision, self.keys) if self.keys else np.zeros((0, 0))

    def ratios(self) -> Floats:
        return np.asarray(np.diag(self.lost) / self.problem.tolerated[self.keys])

    def excess(self) -> float:
        """0 if the worker can be estimated; otherwise by how much its keys miss it."""
        return float(np.maximum(self.ratios() - 1, 0).sum())

    def without(self, place: int) -> WorkerLoad:
        """The load less the key at `place`, which is then observed and tells about the others."""
        rest = np.delete(np.arange(len(self.keys)), place)
        column = self.lost[rest, place]
        smaller = WorkerLoad(self.problem, [])
        smaller.keys = [self.keys[i] for i in rest]
        smaller.lost = (
            self.lost[np.ix_(rest, rest)] - np.outer(column, column) / self.lost[place, place]
        )
        return smaller

    def with_key(self, key: int) -> WorkerLoad:
        precision = self.problem.precision
        column = precision[self.keys, key]
        pull = self.lost @ column
        left = max(float(precision[key, key] - column @ pull), 1e-300)
        larger = WorkerLoad(self.problem, [])
        larger.keys = [*self.keys, key]
        corner = -pull[:, None] / left
        larger.lost = np.block(
            [[self.lost + np.outer(pull, pull) / left, corner], [corner.T, np.array([[1 / left]])]]
        )
        return larger

    def excess_with(self, candidates: Indices) -> Floats:
        """For each candidate, the `excess` with it."""
        precision, tolerated = self.problem.precision, self.problem.tolerated
        columns = precision[np.ix_(np.asarray(self.keys, dtype=np.intp), candidates)]
        pull = self.lost @ columns
        left = np.maximum(precision[candidates, candidates] - (columns * pull).sum(axis=0), 1e-300)
        variances = np.diag(self.lost)[:, None] + pull**2 / left
        mine = np.maximum(variances / tolerated[self.keys][:, None] - 1, 0).sum(axis=0)
        return np.asarray(mine + np.maximum(1 / left / tolerated[candidates] - 1, 0))


class Filling:
    """All workers at once while keys are dealt out: padded arrays, one product a key."""

    def __init__(self, problem: AssignmentProblem, capacities: Sequence[int]) -> None:
        self.problem = problem
        self.capacities = np.asarray(capacities)
        widest = max(int(self.capacities.max(initial=0)), 1)
        self.keys = np.zeros((len(capacities), widest), dtype=np.intp)
        self.sizes = np.zeros(len(capacities), dtype=np.intp)
        self.lost = np.zeros((len(capacities), widest, widest))
        self._variances = np.zeros((len(capacities), widest))

    def ratios(self) -> Floats:
        """For each worker the worst ratio of its keys; 0 if it has none."""
        return np.asarray((self._variances / self.problem.tolerated[self.keys]).max(axis=1))

    def ratios_with(self, key: int) -> Floats:
        pull, left = self._pull(key)
        variances = self._variances + pull**2 / left[:, None]
        mine = (variances / self.problem.tolerated[self.keys]).max(axis=1)
        return np.asarray(np.maximum(mine, 1 / left / self.problem.tolerated[key]))

    def add(self, worker: int, key: int) -> None:
        pulls, lefts = self._pull(key, worker)
        pull, left, size = pulls[0], lefts[0], self.sizes[worker]
        self.lost[worker] += np.outer(pull, pull) / left
        self.lost[worker, size, :] = self.lost[worker, :, size] = -pull / left
        self.lost[worker, size, size] = 1 / left
        self._variances[worker] = np.diag(self.lost[worker])
        self.keys[worker, size] = key
        self.sizes[worker] += 1

    def full(self) -> Floats:
        return np.asarray(self.sizes >= self.capacities)

    def workers(self) -> Workers:
        return [self.keys[i, : self.sizes[i]].tolist() for i in range(len(self.sizes))]

    def _pull(self, key: int, worker: int | None = None) -> tuple[Floats, Floats]:
        some = slice(None) if worker is None else slice(worker, worker + 1)
        # Places that are not filled yet have zeros in `lost`, so what stands in `keys` is harmless.
        columns = self.problem.precision[self.keys[some], key]
        pull = np.einsum("wij,wj->wi", self.lost[some], columns)
        left = self.problem.precision[key, key] - (columns * pull).sum(axis=1)
        return pull, np.maximum(left, 1e-300)
