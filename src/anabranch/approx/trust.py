"""Whether the promise still holds: estimates are compared with the real values, all the time.

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

import numpy as np
import numpy.typing as npt

from anabranch.approx.gaussian import Floats

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
