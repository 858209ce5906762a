"""The approx paper's experiment, and the same on readings of real sensors, out of sample.

Synthetic: figures 10 to 13, with the true mean and covariance as the model. Files: the first part
of the windows is learnt from; in the rest every worker is lost behind every window, and the windows
that a death costs are estimated. The parts of the model are switched on in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from anabranch.approx.assign import METHODS
from anabranch.approx.assign.problem import even, uniform
from anabranch.approx.calibration import Calibration, Settings, misses, rehearse
from anabranch.approx.estimate import Estimator, rehearsed
from anabranch.approx.gaussian import Floats, precision_of
from anabranch.approx.model import Model
from anabranch.approx.plan import EstimationPlan, Promise, assigned, learnt
from bench.approx import data as approx_data

Row = dict[str, Any]
Progress = Callable[[str], None]

CONFIDENCE = 0.95
WORKERS = (2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 24, 30, 40, 60)
EPSILONS = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.9, 1.0, 1.25, 1.5)
AT_EPSILON, AT_WORKERS = 1.0, 10
SYNTHETIC = "synthetic"
FULL = "+calibration"
LADDER: dict[str, Settings] = {
    "gaussian": Settings(shrink=False, clean=False, refresh=0.0, remember=False, calibrate=False),
    "+shrinkage": Settings(refresh=0.0, remember=False, calibrate=False),
    "+refresh": Settings(remember=False, calibrate=False),
    "+residual": Settings(calibrate=False),
    FULL: Settings(),
}
"""Each has all parts of those before it."""


def run_synthetic(progress: Progress, seed: int = 1) -> list[Row]:
    """Figures 10 and 12: by workers, at ε = 1; figures 11 and 13: by ε, with 10 workers."""
    precision = precision_of(approx_data.synthetic_covariance())
    values = approx_data.synthetic(seed)
    points = [(workers, AT_EPSILON) for workers in WORKERS]
    points += [(AT_WORKERS, epsilon) for epsilon in EPSILONS if epsilon != AT_EPSILON]
    rows = []
    for workers, epsilon in points:
        progress(f"Synthetic: {workers} workers, ε = {epsilon} …")
        problem = uniform(precision, epsilon, CONFIDENCE, workers)
        for name, method in METHODS.items():
            begin = time.perf_counter()
            made = method(problem)
            took = time.perf_counter() - begin
            estimable = problem.estimable(made)
            keys = [key for w, good in zip(made, estimable, strict=True) if good for key in w]
            off = np.full_like(values, np.nan)
            for lost in made:
                block = np.linalg.inv(precision[np.ix_(lost, lost)])
                off[:, lost] = np.abs(values @ precision[:, lost] @ block)
            rows.append(
                row(SYNTHETIC, workers, epsilon, name, "known", estimable, took)
                | errors(off[:, None, :], keys, epsilon)
            )
    return rows


def row(
    data: str,
    workers: int,
    epsilon: float,
    method: str,
    model: str,
    estimable: list[bool],
    took: float,
) -> Row:
    return {
        "data": data,
        "workers": workers,
        "epsilon": epsilon,
        "method": method,
        "model": model,
        "estimable": sum(estimable),
        "assign_s": round(took, 4),
    }


def errors(off: Floats, keys: list[int], epsilon: float) -> Row:
    """`off`: by death, lag and key. Equation (9), over the keys of estimable workers."""
    if not keys:
        return {"error": None, "worst_key_error": None, "worst_lag_error": None}
    known = ~np.isnan(off[:, :, keys])
    wrong = (off[:, :, keys] > epsilon) & known
    by_key = wrong.sum(axis=(0, 1)) / np.maximum(known.sum(axis=(0, 1)), 1)
    by_lag = wrong.sum(axis=(0, 2)) / np.maximum(known.sum(axis=(0, 2)), 1)
    return {
        "error": round(float(wrong.sum() / max(known.sum(), 1)), 5),
        "worst_key_error": round(float(by_key.max()), 5),
        "worst_lag_error": round(float(by_lag.max()), 5),
    }


def run_file(
    file: Path,
    progress: Progress,
    *,
    width: int,
    slide: int,
    part: float,
    workers: tuple[int, ...],
    epsilons: tuple[float, ...],
    name: str,
) -> list[Row]:
    windows = approx_data.means(approx_data.read(file), width, slide)
    lags = -(-width // slide)
    return run_windows(windows, lags, progress, part, workers, epsilons, name, LADDER)


def run_regimes(progress: Progress, seed: int = 1) -> list[Row]:
    """Generated keys that change their ways in the part that nothing is learnt from."""
    rows: list[Row] = []
    full = {FULL: LADDER[FULL]}
    for kind in approx_data.REGIMES:
        windows = approx_data.means(approx_data.regime(kind, seed), 3, 1)
        rows += run_windows(windows, 3, progress, 0.6, (8,), (0.6,), f"change: {kind}", full)
    return rows


def run_windows(
    windows: Floats,
    lags: int,
    progress: Progress,
    part: float,
    workers: tuple[int, ...],
    epsilons: tuple[float, ...],
    name: str,
    ladder: Mapping[str, Settings],
) -> list[Row]:
    """Of window results in rows, the first `part` is learnt from."""
    split = int(len(windows) * part)
    history, rest = windows[:split], windows[split:]
    rows = []
    for model_name, settings in ladder.items():
        progress(f"{name}: learning, {model_name} …")
        any_promise = Promise(1.0, CONFIDENCE, lags)
        begin = time.perf_counter()
        model, rehearsal, weight = learnt(history, any_promise, settings)
        took_learning = time.perf_counter() - begin
        ahead = rehearse(model, rest, lags, weight, clean=settings.clean)
        for count in workers:
            for epsilon in epsilons:
                for method in METHODS if model_name == FULL and len(ladder) > 1 else ("swaps",):
                    progress(f"{name}: {model_name}, {count} workers, ε = {epsilon:g}, {method} …")
                    begin = time.perf_counter()
                    made = assigned(
                        model,
                        rehearsal,
                        weight,
                        replace(any_promise, epsilon=epsilon),
                        even(windows.shape[1], count),
                        method,
                        settings,
                    )
                    took = time.perf_counter() - begin
                    off = misses(ahead.residuals(made.workers), made.calibration.memory)
                    plain = off
                    keys = [
                        key
                        for w, good in zip(made.workers, made.estimable, strict=True)
                        if good
                        for key in w
                    ]
                    watched = unwatched(made, plain, keys)
                    if settings.calibrate:
                        off, watched = watch(made, plain)
                    rows.append(
                        row(name, count, epsilon, method, model_name, made.estimable, took)
                        | errors(off, keys, epsilon)
                        | {"unwatched_error": errors(plain, keys, epsilon)["error"]}
                        | watched
                        | {"refresh": weight, "learn_s": round(took_learning, 2)}
                    )
    return rows


def watch(made: EstimationPlan, off: Floats) -> tuple[Floats, Row]:
    """Misses of estimates that would be made, NaN where the worker was not trusted; and how many
    workers were, on average, how wide bounds were and how often a value was outside its own."""
    promise, calibration = made.promise, made.calibration
    good, width = rehearsed(off, calibration.by_lag, promise.epsilon, promise.confidence)
    kept, trusted = np.full_like(off, np.nan), 0.0
    for keys, estimable in zip(made.workers, made.estimable, strict=True):
        if estimable and keys:
            there = good[:, keys].all(axis=1)
            trusted += float(there.mean())
            for key in keys:
                kept[there, :, key] = off[there, :, key]
    known = ~np.isnan(kept)
    bounds = calibration.by_lag * width[:, None, :]
    row: Row = {"trusted": round(trusted, 2), "bound": None, "outside_bound": None}
    if known.any():
        row["bound"] = round(float(np.median(bounds[known])), 4)
        row["outside_bound"] = round(float((kept > bounds)[known].mean()), 5)
    return kept, row


def unwatched(made: EstimationPlan, off: Floats, keys: list[int]) -> Row:
    """The same without a look at what came."""
    row: Row = {"trusted": sum(made.estimable), "bound": None, "outside_bound": None}
    if keys:
        outside = off[:, :, keys] > made.calibration.by_lag[:, keys]
        row["bound"] = round(float(np.median(made.calibration.by_lag[:, keys])), 4)
        row["outside_bound"] = round(float(outside.mean()), 5)
    return row


def run_speed(progress: Progress) -> Row:
    """2,000 keys assigned; a lost window of 200 keys estimated from 1,800 others."""
    progress("2,000 keys: assignment and estimation …")
    draw = np.random.default_rng(1)
    factors = draw.normal(size=(2000, 40))
    covariance = factors @ factors.T / 40 + np.diag(draw.uniform(0.05, 0.3, 2000))
    precision = precision_of(covariance)
    result: Row = {}
    for workers in (10, 20, 200):
        problem = uniform(precision, 1.0, CONFIDENCE, workers)
        begin = time.perf_counter()
        made = METHODS["swaps"](problem)
        result[f"assign_2000_keys_{workers}_workers_s"] = round(time.perf_counter() - begin, 3)
        if workers == 10:
            ten = made
    model = Model(np.zeros(2000), covariance, 0.0, np.ones(2000), np.ones(2000))
    lags = np.ones((3, 2000))
    plan = EstimationPlan(
        Promise(1.0, CONFIDENCE, 3), model, 0.0, ten, Calibration(lags, lags, lags[0]), lags[0]
    )
    estimator = Estimator(plan)
    window, last = draw.multivariate_normal(np.zeros(2000), covariance, 2, method="cholesky")
    window[ten[0]] = np.nan
    times = []
    for _ in range(50):
        begin = time.perf_counter()
        estimator.estimate([0], window, last, 1)
        times.append(time.perf_counter() - begin)
    result["estimate_200_keys_ms"] = round(float(np.median(times)) * 1000, 3)
    return result
