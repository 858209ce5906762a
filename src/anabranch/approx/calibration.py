"""Measures how far estimates are really off, per key and lag.

The *lag* of a lost window says how many windows ago its worker's last one came. A key's residual
persists (its sensor stands in the sun), so its residual in that last window, times its memory at
that lag, is part of the estimate.

History is *rehearsed*: at every window a worker might have died, and the windows after it are
estimated by the model as it was then. The estimated windows were not learnt from: they lie in a
block of time that the model has not seen, or in the future.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from anabranch.approx.gaussian import Floats, Keys
from anabranch.approx.model import Model, learn

Assignment = Sequence[Keys]


@dataclass(frozen=True)
class Settings:
    """The parts of the model, each of which can be switched off."""

    shrink: bool = True
    clean: bool = True
    refresh: float | None = None
    """Weight of each new window; None: the one that did best on left-out blocks; 0: no refresh."""
    remember: bool = True
    """Use the last residual."""
    calibrate: bool = True
    """Bounds from left-out blocks instead of the Gaussian's."""


WEIGHTS = (0.0, 1 / 1000, 1 / 300, 1 / 100, 1 / 30)
BLOCKS = 6
ALL_PARTS = Settings()


def lost_residuals(
    model: Model, workers: Assignment, windows: Floats, clean: Floats | None = None
) -> Floats:
    """Each key's value less its estimate (1) from the keys of all other workers. NaN where the
    value is missing. `clean` are the windows that estimates are made from, without glitches.
    """
    seen = model.completed(windows if clean is None else clean)
    pull = (seen - model.mean) @ model.precision
    result = np.full_like(pull, np.nan)
    for keys in workers:
        index = np.asarray(keys, dtype=np.intp)
        if len(index):
            precise = model.precision[np.ix_(index, index)]
            result[:, index] = np.linalg.solve(precise, pull[:, index].T).T
    return np.asarray(result + (windows - seen))


@dataclass(frozen=True)
class Rehearsal:
    """Deaths that might have been: the model at each, the windows from the last whole one on, and
    the same without glitches.
    """

    deaths: tuple[tuple[Model, Floats, Floats], ...]
    blocks: tuple[int, ...]
    """How many of them are in each block of time."""

    def residuals(self, workers: Assignment) -> Floats:
        """The residuals by death, lag (0: the last whole window) and key."""
        return np.array([lost_residuals(model, workers, *rows) for model, *rows in self.deaths])


def rehearse(
    model: Model, windows: Floats, lags: int, weight: float, *, clean: bool = True
) -> Rehearsal:
    """Walks over windows that `model` has not seen; each window refreshes it once it is whole. With
    `clean`, estimates are made without glitches.
    """
    stride = max(1, windows.shape[1] // 64)
    """A model of many keys is refreshed less often: each time its covariance is inverted."""
    seen, models = np.array(windows, dtype=np.float64), []
    for now, window in enumerate(windows):
        if clean:
            seen[now] = model.without_glitches(window)
        if weight and now % stride == 0:
            model = model.refreshed(seen[max(now + 1 - stride, 0) : now + 1], weight)
        models.append(model)
    ends = [slice(last, last + lags + 1) for last in range(len(windows) - lags)]
    deaths = tuple((models[end.start], windows[end], seen[end]) for end in ends)
    return Rehearsal(deaths, (len(deaths),))


def rehearse_history(
    windows: Floats, lags: int, gap: int, weight: float, settings: Settings
) -> Rehearsal:
    """Rehearses each block of time with a model of the others. Windows that overlap a block, up to
    `gap` on each side of it, are not learnt from.
    """
    edges = np.linspace(0, len(windows), BLOCKS + 1).astype(int)
    rehearsals: list[Rehearsal] = []
    for start, end in pairwise(edges):
        kept = np.concatenate([windows[: max(start - gap, 0)], windows[end + gap :]])
        model = learn(kept, shrink=settings.shrink, clean=settings.clean)
        rehearsals.append(rehearse(model, windows[start:end], lags, weight, clean=settings.clean))
    deaths = tuple(death for one in rehearsals for death in one.deaths)
    return Rehearsal(deaths, tuple(len(one.deaths) for one in rehearsals))


@dataclass(frozen=True)
class Calibration:
    memory: Floats
    """By lag and key: the part of the last residual that is still there."""
    by_lag: Floats
    """By lag and key: an estimate is off by more with probability 1 − confidence at most."""
    bound: Floats
    """By key: the same over all windows that a death costs; and in no block of time is an estimate
    off by more twice as often. What held only on average may have begun to change."""


def memories(residuals: Floats) -> Floats:
    """The memories by lag (from 1) and key, in [0, 1], by least squares."""
    last = residuals[:, 0]
    result = []
    for now in np.moveaxis(residuals[:, 1:], 1, 0):
        both = ~np.isnan(now) & ~np.isnan(last)
        product = np.where(both, now * last, 0).sum(axis=0)
        square = np.where(both, last * last, 0).sum(axis=0)
        result.append(np.clip(product / np.maximum(square, 1e-300), 0, 1))
    return np.array(result)


def misses(residuals: Floats, memory: Floats) -> Floats:
    """How far each estimate is off, by death, lag and key. Without a last value nothing is
    remembered.
    """
    last = np.nan_to_num(residuals[:, :1])
    return np.asarray(np.abs(residuals[:, 1:] - memory * last))


def calibrate(
    residuals: Floats, blocks: Sequence[int], confidence: float, remember: bool = True
) -> Calibration:
    memory = memories(residuals)
    if not remember:
        memory = np.zeros_like(memory)
    off = misses(residuals, memory)
    return Calibration(
        memory,
        np.array([quantile(off[:, lag], confidence) for lag in range(len(memory))]),
        np.maximum(_pooled(off, confidence), _worst_block(off, blocks, confidence)),
    )


def _pooled(off: Floats, confidence: float) -> Floats:
    return quantile(off.reshape(-1, off.shape[2]), confidence)


def _worst_block(off: Floats, blocks: Sequence[int], confidence: float) -> Floats:
    """The worst block's quantile. A block with too few values for it counts with its largest
    value.
    """
    twice = max(1 - 2 * (1 - confidence), 0.5)
    worst = np.zeros(off.shape[2])
    for block in np.split(off, np.cumsum(blocks)[:-1]):
        largest = np.nan_to_num(block, nan=0.0).max(axis=(0, 1), initial=0.0)
        worst = np.maximum(worst, np.minimum(_pooled(block, twice), largest))
    return worst


def quantile(off: Floats, confidence: float) -> Floats:
    """For each key the value below which this part of the misses stays, as conformal prediction
    takes it: the ⌈(n + 1)·confidence⌉-th smallest of n. Infinite for a key with too few values.
    """
    if len(off) == 0:
        return np.full(off.shape[1], np.inf)
    count = (~np.isnan(off)).sum(axis=0)
    rank = np.ceil((count + 1) * confidence).astype(int)
    ordered = np.sort(np.where(np.isnan(off), np.inf, off), axis=0)
    chosen = np.minimum(rank - 1, len(off) - 1)
    return np.where(rank <= count, ordered[chosen, np.arange(off.shape[1])], np.inf)
