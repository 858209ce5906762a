"""Estimates lost windows from those that came, with gains computed ahead."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from anabranch.approx.gaussian import Floats, Indices, gain, lost_covariance, others
from anabranch.approx.model import GLITCH, Model
from anabranch.approx.plan import Plan


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
    def __init__(self, plan: Plan) -> None:
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


def _same(one: Floats, other: Floats) -> bool:
    return one is other or np.array_equal(one, other, equal_nan=True)


def _screened(model: Model, lost: list[int], window: Floats) -> Floats:
    hidden = np.array(window, dtype=np.float64)
    hidden[lost] = np.nan
    return model.without_glitches(hidden)
