"""A plan in use: its model follows the windows as they come, and is checked by each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from anabranch.approx.calibration import lost_residuals
from anabranch.approx.estimate import Estimator
from anabranch.approx.gaussian import Floats
from anabranch.approx.plan import Plan
from anabranch.approx.trust import Trust
from anabranch.coordinator.approximate.results import Estimate, Key


class Adopted:
    """`keys` are the plan's columns."""

    def __init__(self, plan: Plan, keys: list[Key]) -> None:
        self.plan = plan
        self.keys = keys
        self._places = {key: place for place, key in enumerate(keys)}
        promise = plan.promise
        self._trust = Trust(len(keys), promise.lags, promise.epsilon, promise.confidence)
        self._clean: dict[int, Floats] = {}
        """The newest windows, less glitches."""
        self._estimator: Estimator | None = None

    def knows(self, key: Key) -> bool:
        return key in self._places

    def bound(self, keys: Iterable[Key]) -> float:
        """What estimates of these are off by, at most; of keys that it knows."""
        return float(self.plan.bounds[self._of(keys)].max(initial=0.0))

    def trusts(self, keys: Iterable[Key]) -> bool:
        """What held on history has held of late."""
        return bool(self._trust.trusted[self._of(keys)].all())

    def _of(self, keys: Iterable[Key]) -> list[int]:
        return [self._places[key] for key in keys if key in self._places]

    def follow(self, ends: list[int], windows: Floats) -> None:
        """The last of these whole windows is new; those before it are checked against, if there
        are as many as overlap."""
        model = self.plan.model
        row = model.without_glitches(windows[-1])
        self._clean = {end: self._clean[end] for end in ends if end in self._clean}
        self._clean[ends[-1]] = row
        if len(ends) > self.plan.promise.lags:
            self._check(ends, windows)
        if self.plan.weight:
            self.plan = replace(self.plan, model=model.refreshed(row[None], self.plan.weight))

    def _check(self, ends: list[int], windows: Floats) -> None:
        """How far estimates of the last window would have been off, behind each of the others."""
        plan = self.plan
        clean = np.array(
            [self._clean.get(end, row) for end, row in zip(ends, windows, strict=True)]
        )
        residuals = lost_residuals(plan.model, plan.workers, windows, clean)
        before, now = np.nan_to_num(residuals[-2::-1]), residuals[-1]
        off = np.abs(now - plan.calibration.memory * before)
        self._trust.take(off, plan.calibration.by_lag)

    def estimate(
        self, lost: Iterable[int], window: Floats, last: Floats | None, lag: int
    ) -> list[Estimate]:
        """Every key of `lost` workers. What is computed ahead for a model serves all windows that
        are estimated by it."""
        if self._estimator is None or self._estimator.plan is not self.plan:
            self._estimator = Estimator(self.plan)
        found = self._estimator.estimate(sorted(lost), window, last, max(lag, 1))
        bounds: Floats = found.bounds * self._trust.width[found.keys]
        return [
            Estimate(self.keys[index], float(value), float(bound))
            for index, value, bound in zip(found.keys, found.values, bounds, strict=True)
        ]
