"""An assignment with its promises: model, calibration, and which workers can be estimated."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from anabranch.approx.assign import METHODS
from anabranch.approx.assign.problem import AssignmentProblem, Workers, even
from anabranch.approx.calibration import (
    ALL_PARTS,
    WEIGHTS,
    Calibration,
    Rehearsal,
    Settings,
    calibrate,
    rehearse_history,
)
from anabranch.approx.gaussian import Floats, lost_covariance, normal_quantile
from anabranch.approx.model import Model, learn

ROUNDS = 3


@dataclass(frozen=True)
class Promise:
    """`APPROXIMATE WITHIN epsilon CONFIDENCE confidence`, and what it must hold against."""

    epsilon: float
    confidence: float
    lags: int
    """So many windows are lost with a worker: as many as overlap."""
    failures: int = 1


@dataclass(frozen=True)
class EstimationPlan:
    promise: Promise
    model: Model
    weight: float
    """Of each new window in the model."""
    workers: Workers
    calibration: Calibration
    bounds: Floats
    """By key, whichever workers are lost with its own."""

    @property
    def estimable(self) -> list[bool]:
        return [
            not keys or float(self.bounds[keys].max()) <= self.promise.epsilon
            for keys in self.workers
        ]


def learnt(history: Floats, promise: Promise, settings: Settings) -> tuple[Model, Rehearsal, float]:
    """The model of all history, its rehearsal, and the refresh that did best in it."""
    model = learn(history, shrink=settings.shrink, clean=settings.clean)
    weights = WEIGHTS if settings.refresh is None else (settings.refresh,)
    single = [[key] for key in range(history.shape[1])]
    best: tuple[float, float, Rehearsal] | None = None
    for weight in weights:
        rehearsal = rehearse_history(history, promise.lags, promise.lags, weight, settings)
        bound = calibrate(
            rehearsal.residuals(single), rehearsal.blocks, promise.confidence, settings.remember
        ).bound
        width = float(np.mean(np.log(np.maximum(bound, 1e-12))))
        if best is None or width < best[0]:
            best = (width, weight, rehearsal)
    assert best is not None
    return model, best[2], best[1]


def plan(
    history: Floats,
    promise: Promise,
    workers: int | tuple[int, ...],
    *,
    method: str = "swaps",
    settings: Settings = ALL_PARTS,
    previous: Workers | None = None,
    moves: int | None = None,
) -> EstimationPlan:
    """Learns, assigns and calibrates; then assigns again with what calibration found about each
    key.
    """
    model, rehearsal, weight = learnt(history, promise, settings)
    capacities = even(history.shape[1], workers) if isinstance(workers, int) else workers
    return assigned(
        model, rehearsal, weight, promise, capacities, method, settings, previous, moves
    )


def assigned(
    model: Model,
    rehearsal: Rehearsal,
    weight: float,
    promise: Promise,
    capacities: tuple[int, ...],
    method: str = "swaps",
    settings: Settings = ALL_PARTS,
    previous: Workers | None = None,
    moves: int | None = None,
) -> EstimationPlan:
    def judge(workers: Workers) -> EstimationPlan:
        return judged(model, rehearsal, weight, promise, workers, settings)

    tolerated = np.full(len(model.mean), promise.epsilon / normal_quantile(promise.confidence))
    if settings.calibrate:
        tolerated = _tolerated(judge([[key] for key in range(len(model.mean))]))
    best: EstimationPlan | None = None
    for _ in range(ROUNDS if settings.calibrate else 1):
        problem = AssignmentProblem(
            model.precision,
            tolerated**2,
            promise.confidence,
            capacities,
            promise.failures,
            previous,
            moves,
        )
        result = judge(METHODS[method](problem))
        if best is None or sum(result.estimable) > sum(best.estimable):
            best = result
        tolerated = np.minimum(tolerated, _tolerated(result))
    assert best is not None
    return best


def judged(
    model: Model,
    rehearsal: Rehearsal,
    weight: float,
    promise: Promise,
    workers: Workers,
    settings: Settings,
) -> EstimationPlan:
    """What can be promised with this assignment of keys."""
    calibration = calibrate(
        rehearsal.residuals(workers), rehearsal.blocks, promise.confidence, settings.remember
    )
    sigmas = _sigmas(model, workers)
    z = normal_quantile(promise.confidence)
    if not settings.calibrate:
        calibration = replace(
            calibration, by_lag=np.tile(z * sigmas, (promise.lags, 1)), bound=z * sigmas
        )
    bounds = calibration.bound * _with_others(model, workers, promise.failures) / sigmas
    return EstimationPlan(promise, model, weight, workers, calibration, bounds)


def _tolerated(plan: EstimationPlan) -> Floats:
    """For each key the standard deviation with which its bound would be ε, if bounds are
    proportional to it.
    """
    bound = np.where(np.isfinite(plan.calibration.bound), plan.calibration.bound, 1e30)
    return _sigmas(plan.model, plan.workers) * plan.promise.epsilon / np.maximum(bound, 1e-12)


def _sigmas(model: Model, workers: Workers) -> Floats:
    result = np.zeros(len(model.mean))
    for keys in workers:
        if keys:
            result[keys] = np.sqrt(np.diag(lost_covariance(model.precision, keys)))
    return result


def _with_others(model: Model, workers: Workers, failures: int) -> Floats:
    """`_sigmas` if any `failures` − 1 other workers are lost as well."""
    result = _sigmas(model, workers)
    for group in combinations([keys for keys in workers if keys], failures) if failures > 1 else ():
        lost = [key for keys in group for key in keys]
        sigmas = np.sqrt(np.diag(lost_covariance(model.precision, lost)))
        result[lost] = np.maximum(result[lost], sigmas)
    return result
