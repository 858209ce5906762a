"""Lost windows are estimated from those that came, with gains computed ahead; whether that
promise still holds is checked all the time.

While no worker is dead, every window says how far off its estimate would have been. Two things
follow from that, for each key:

- *Trust.* Misses are counted against what is allowed (a CUSUM). A key with more misses than chance
explains has changed its behaviour: nothing is promised about it until it has been as it should be
for a while, twice as long each time.
- *Width.* Bounds were found on history. They are widened with each value that lies outside its own,
and narrowed with each inside, so that in the long run as many lie outside as may, whatever the data
do (adaptive conformal inference).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from anabranch.approx.gaussian import Floats, Indices, gain, lost_covariance, others
from anabranch.approx.model import GLITCH, Model
from anabranch.approx.plan import EstimationPlan


@dataclass(frozen=True)
class Estimates:
    keys: Indices
    values: Floats
    bounds: Floats
    """The true value lies within ± this with the promised confidence."""


@dataclass(frozen=True)
class _Gain:
    """The gain that estimates `lost` from `observed`."""

    lost: Indices
    observed: Indices
    matrix: Floats
    sigmas: Floats


class Estimator:
    def __init__(self, plan: EstimationPlan) -> None:
        self.plan = plan
        self._gains: dict[tuple[int, ...], _Gain] = {}
        self._last: tuple[list[int], Floats, Floats] | None = None
        self._usual = np.concatenate([self._gain(w).sigmas for w in plan.workers if w])
        self._usual = self._usual[
            np.argsort(np.concatenate([np.sort(w) for w in plan.workers if w]))
        ]
        """By key: its deviation when only its own worker is lost, which bounds were made for."""

    def estimate(
        self, workers: Iterable[int], window: Floats, last: Floats | None, lag: int
    ) -> Estimates:
        """The keys of `lost` workers in a window; NaN elsewhere. `window` holds what came of it.
        `last` is the window `lag` before it, the last whole one, or None. Beyond the calibrated
        lags the last one's bound is stretched, and nothing is remembered.
        """
        lost = sorted(key for worker in workers for key in self.plan.workers[worker])
        values, sigmas = self._means(lost, window, last, lag)
        calibration, depth = self.plan.calibration, self.plan.promise.lags
        if last is not None and lag <= depth:
            values = values + calibration.memory[lag - 1, lost] * self._last_residual(lost, last)
        stretch = np.maximum(sigmas / self._usual[lost], 1)
        if lag > depth:
            stretch = stretch * np.sqrt(lag / depth)
        bounds = calibration.by_lag[min(lag, depth) - 1, lost] * stretch
        return Estimates(np.asarray(lost, dtype=np.intp), values, bounds)

    def _last_residual(self, lost: list[int], last: Floats) -> Floats:
        """The residual of the last whole window; it is the same for all windows that a death
        costs.
        """
        if self._last is None or self._last[0] != lost or not _same(self._last[1], last):
            expected, _ = self._from_few(lost, _screened(self.plan.model, lost, last))
            self._last = (lost, last, np.nan_to_num(last[lost] - expected))
        return self._last[2]

    def _means(
        self, lost: list[int], window: Floats, last: Floats | None, lag: int
    ) -> tuple[Floats, Floats]:
        """Conditional means and deviations of `lost`, given the values that came and are no
        glitches. Keys are examined one by one only if some has jumped since `last`.
        """
        stored, model = self._gain(lost), self.plan.model
        seen = window[stored.observed]
        if last is not None:
            jump = np.abs(seen - last[stored.observed]) / model.jump[stored.observed]
            if jump.max(initial=0) <= GLITCH * np.sqrt(lag):  # False as well if one is missing
                return model.mean[lost] + stored.matrix @ (seen - model.mean[stored.observed]), (
                    stored.sigmas
                )
        return self._from_few(lost, _screened(model, lost, window))

    def _from_few(self, lost: list[int], window: Floats) -> tuple[Floats, Floats]:
        model = self.plan.model
        hidden = np.flatnonzero(np.isnan(window))
        seen = np.flatnonzero(~np.isnan(window))
        places = np.searchsorted(hidden, lost)
        matrix = gain(model.precision, hidden, seen)[places]
        variances = np.diag(lost_covariance(model.precision, hidden))[places]
        return model.mean[lost] + matrix @ (window[seen] - model.mean[seen]), np.sqrt(variances)

    def _gain(self, lost: Iterable[int]) -> _Gain:
        keys = tuple(sorted(lost))
        if keys not in self._gains:
            precision = self.plan.model.precision
            index = np.asarray(keys, dtype=np.intp)
            seen = others(len(precision), index)
            matrix = gain(precision, index, seen)
            sigmas = np.sqrt(np.diag(lost_covariance(precision, index)))
            self._gains[keys] = _Gain(index, seen, matrix, sigmas)
        return self._gains[keys]


def _same(first: Floats, other: Floats) -> bool:
    return first is other or np.array_equal(first, other, equal_nan=True)


def _screened(model: Model, lost: list[int], window: Floats) -> Floats:
    hidden = np.array(window, dtype=np.float64)
    hidden[lost] = np.nan
    return model.without_glitches(hidden)


SLACK = 1.5
"""Errors up to so many times what is allowed are no change of ways."""
PROBATION = 10
"""Windows, the first time."""
RATE = 0.05
"""Of the width's adaptation."""
NARROWEST, WIDEST = 0.5, 20.0

Flags = npt.NDArray[np.bool_]


class Trust:
    """`take` gets new facts in order; the other methods say what holds now."""

    def __init__(self, keys: int, lags: int, epsilon: float, confidence: float) -> None:
        self._epsilon = epsilon
        self._allowed = 1 - confidence
        self._surprise = float(lags * lags)
        """A reading that nobody expected is in `lags` windows, each of which is estimated behind
        `lags` deaths."""
        self._excess = np.zeros(keys)
        self._left = np.zeros(keys, dtype=int)
        self._losses = np.zeros(keys, dtype=int)
        self.width = np.ones(keys)
        """By key: so many times the calibrated bound."""

    @property
    def trusted(self) -> Flags:
        """For each key, whether it is trusted."""
        return np.asarray(self._left == 0)

    def take(self, off: Floats, bounds: Floats) -> None:
        """Takes by lag and key how far estimates of a window were off, had the worker died that
        many windows before it, and their calibrated bounds. NaN: nobody knows.
        """
        known = ~np.isnan(off)
        count = known.sum(axis=0)
        wrong = ((off > self._epsilon) & known).sum(axis=0)
        self._excess = np.maximum(self._excess + wrong - SLACK * self._allowed * count, 0)
        self._judge(np.asarray(count > 0))
        outside = ((off > bounds * self.width) & known).sum(axis=0)
        step = RATE * (outside - self._allowed * count)
        self.width = np.clip(self.width * np.exp(step), NARROWEST, WIDEST)

    def _judge(self, seen: Flags) -> None:
        self._left = np.maximum(self._left - seen, 0)
        lost = self._excess > self._surprise
        self._losses = self._losses + (lost & (self._left == 0))
        again = PROBATION * 2 ** np.clip(self._losses - 1, 0, 10)
        self._left = np.where(lost, again, self._left)
        self._excess = np.where(lost, 0, self._excess)


def rehearsed(
    off: Floats, by_lag: Floats, epsilon: float, confidence: float
) -> tuple[Flags, Floats]:
    """Trust and width by death and key: whether it was trusted, as far as that could be known then.
    `off` is by death, lag and key.
    """
    deaths, lags, keys = off.shape
    trust = Trust(keys, lags, epsilon, confidence)
    good, width = np.zeros((deaths, keys), dtype=bool), np.ones((deaths, keys))
    nobody = np.full(keys, np.nan)
    for death in range(deaths):
        known = [off[death - lag - 1, lag] if lag < death else nobody for lag in range(lags)]
        trust.take(np.array(known), by_lag)
        good[death], width[death] = trust.trusted, trust.width
    return good, width
