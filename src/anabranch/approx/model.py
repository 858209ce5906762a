"""Mean and covariance of window results: learnt from past windows, which are read in blocks of
time, and refreshed while queries run.

A block holds the values that came (NaN: missing, or taken out as a glitch) and the same with
nothing missing.

A row is one window, a column one key, NaN a missing value. The covariance is shrunk towards
independent keys (Ledoit–Wolf), because there are seldom many more windows than keys. Missing values
are replaced by what the others predict. Glitches, values that the other keys contradict by far more
than usual, are not learnt from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from operator import add
from typing import Protocol, TypeVar

import numpy as np

from anabranch.approx.gaussian import Floats, precision_of

V = TypeVar("V")


@dataclass(frozen=True)
class WindowBlock:
    known: Floats
    full: Floats


class History(Protocol):
    """A history of at least one block. `look` and `change` may run elsewhere."""

    def map(self, change: Callable[[WindowBlock], WindowBlock]) -> History: ...

    def fold(self, look: Callable[[WindowBlock], V], merge: Callable[[V, V], V]) -> V: ...


class Here:
    """A history whose blocks are in this process."""

    def __init__(self, blocks: Sequence[WindowBlock]) -> None:
        self._blocks = blocks

    def map(self, change: Callable[[WindowBlock], WindowBlock]) -> Here:
        return Here([change(block) for block in self._blocks])

    def fold(self, look: Callable[[WindowBlock], V], merge: Callable[[V, V], V]) -> V:
        return reduce(merge, map(look, self._blocks))


@dataclass(frozen=True)
class WindowMoments:
    """The moments of the full windows: their number, mean, and summed products of distances from
    it.
    """

    count: int
    mean: Floats
    scatter: Floats

    def __add__(self, other: WindowMoments) -> WindowMoments:
        count = self.count + other.count
        if not count:
            return self
        away = other.mean - self.mean
        between = np.outer(away, away) * (self.count * other.count / count)
        return WindowMoments(
            count,
            self.mean + away * (other.count / count),
            self.scatter + other.scatter + between,
        )


def moments(block: WindowBlock) -> WindowMoments:
    full = block.full
    mean = full.mean(axis=0) if len(full) else np.zeros(full.shape[1])
    return WindowMoments(len(full), mean, (full - mean).T @ (full - mean))


@dataclass(frozen=True)
class Sums:
    """For each key, how many values there are, and their sum."""

    count: Floats
    total: Floats

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.count + other.count, self.total + other.total)

    @property
    def means(self) -> Floats:
        return np.asarray(self.total / np.maximum(self.count, 1))


def sums(block: WindowBlock) -> Sums:
    return Sums(
        (~np.isnan(block.known)).sum(axis=0).astype(np.float64), np.nansum(block.known, axis=0)
    )


def shrinkage(count: int, correlation: Floats, fourth: float) -> float:
    """Ledoit and Wolf's shrinkage of `count` standardised windows with this covariance; `fourth` is
    the sum of the fourth powers of their lengths. As in scikit-learn, which wants all windows at
    once.
    """
    keys = len(correlation)
    scale = float(np.trace(correlation)) / keys
    squared = float((correlation**2).sum())
    noise = (fourth / count - squared) / (keys * count)
    distance = (squared - 2 * scale * float(np.trace(correlation)) + keys * scale**2) / keys
    noise = min(noise, distance)
    return 0.0 if noise <= 0 else noise / distance


def sampled(values: Floats, most: int) -> Floats:
    """At most this many rows, evenly spread."""
    step = -(-len(values) // most) if most else 1
    return values[:: max(step, 1)]


GLITCH = 12.0
"""A residual of more than so many usual ones is a glitch."""
PASSES = 3
SAMPLE = 4000
"""What is usual is told from so many windows at most."""


@dataclass(frozen=True)
class Model:
    mean: Floats
    sample: Floats
    """Covariance as observed, exponentially weighted once windows are added."""
    shrinkage: float
    spread: Floats
    """The usual residual of each key, given all others: a robust standard deviation."""
    jump: Floats
    """The usual change of each key from one window to the next, as robust."""

    @cached_property
    def covariance(self) -> Floats:
        return (1 - self.shrinkage) * self.sample + self.shrinkage * np.diag(np.diag(self.sample))

    @cached_property
    def precision(self) -> Floats:
        return precision_of(self.covariance)

    def residuals(self, windows: Floats) -> Floats:
        """Each key's value less its prediction from all others. No value may be missing."""
        return np.asarray((windows - self.mean) @ self.precision / np.diag(self.precision))

    def completed(self, windows: Floats) -> Floats:
        """Missing values replaced by their conditional means (1)."""
        full = np.array(windows, dtype=np.float64)
        missing = np.isnan(full)
        if not missing.any():
            return full
        for pattern in np.unique(missing[missing.any(axis=1)], axis=0):
            rows = (missing == pattern).all(axis=1)
            lost, seen = np.flatnonzero(pattern), np.flatnonzero(~pattern)
            precise = self.precision[np.ix_(lost, lost)]
            pull = (
                self.precision[np.ix_(lost, seen)] @ (full[np.ix_(rows, seen)] - self.mean[seen]).T
            )
            full[np.ix_(rows, lost)] = self.mean[lost] - np.linalg.solve(precise, pull).T
        return full

    def without_glitches(self, window: Floats) -> Floats:
        """The window, with NaN for values that the others contradict. The worst goes first, because
        it bends the predictions of the others. At most a quarter of the keys go.
        """
        clean = np.array(window, dtype=np.float64)
        for _ in range(len(clean) // 4):
            far = np.abs(self.residuals(self.completed(clean[None]))[0]) / self.spread
            far[np.isnan(clean)] = 0
            worst = int(np.argmax(far))
            if far[worst] <= GLITCH:
                break
            clean[worst] = np.nan
        return clean

    def refreshed(self, windows: Floats, weight: float) -> Model:
        """The model after these windows: each in turn counts `weight`, and all earlier ones lose as
        much.
        """
        mean, sample = self.mean.copy(), self.sample.copy()
        for window in self.completed(windows):
            away = window - mean
            mean += weight * away
            sample = (1 - weight) * (sample + weight * np.outer(away, away))
        return replace(self, mean=mean, sample=sample)


def learn(windows: Floats, *, shrink: bool = True, clean: bool = True) -> Model:
    """The model of past windows that are all in this process."""
    known = np.array(windows, dtype=np.float64)
    return learn_from(Here([WindowBlock(known, known)]), shrink=shrink, clean=clean)


def learn_from(history: History, *, shrink: bool = True, clean: bool = True) -> Model:
    """The model of past windows. Keys without any value get the mean 0 and tell nothing about
    others.
    """
    known = history.fold(sums, add)
    holes = bool((known.count < known.count.max()).any()) or known.count.max() == 0
    history = history.map(partial(_with_means, known.means))
    model = _fit(history, shrink)
    for _ in range(PASSES if clean or holes else 0):
        history = history.map(partial(_completed, model, clean))
        model = _fit(history, shrink)
    return model


def _with_means(means: Floats, block: WindowBlock) -> WindowBlock:
    return WindowBlock(block.known, np.where(np.isnan(block.known), means, block.known))


def _completed(model: Model, clean: bool, block: WindowBlock) -> WindowBlock:
    known = _less_glitches(model, block) if clean else block.known
    return WindowBlock(known, model.completed(known))


def _less_glitches(model: Model, block: WindowBlock) -> Floats:
    """The block without the worst glitch of each window, which may be the cause of all others."""
    far = np.abs(model.residuals(block.full)) / model.spread
    worst = np.zeros(far.shape, dtype=bool)
    worst[np.arange(len(far)), np.argmax(far, axis=1)] = True
    return np.where(worst & (far > GLITCH), np.nan, block.known)


def _fit(history: History, shrink: bool) -> Model:
    totals = history.fold(moments, add)
    sample = totals.scatter / totals.count
    scale = np.sqrt(np.diag(sample))
    scale = np.where(scale > 0, scale, max(float(scale.max()) * 1e-6, 1e-9))
    amount = 0.0
    if shrink:
        fourth = history.fold(partial(_fourth, totals.mean, scale), add)
        amount = shrinkage(totals.count, sample / np.outer(scale, scale), fourth)
    sample[np.diag_indices_from(sample)] = scale**2
    nothing = np.ones_like(scale)
    model = Model(totals.mean, sample, amount, nothing, nothing)
    far, jumps = history.fold(partial(_spreads, model, totals.count), _appended)
    return replace(model, spread=_robust(far), jump=_robust(jumps))


def _fourth(mean: Floats, scale: Floats, block: WindowBlock) -> float:
    return float(((((block.full - mean) / scale) ** 2).sum(axis=1) ** 2).sum())


def _spreads(model: Model, count: int, block: WindowBlock) -> tuple[Floats, Floats]:
    """The spreads of residuals, and of changes from a window to the next; for a long history they
    come from a sample.
    """
    most = -(-SAMPLE * len(block.full) // count)
    jumps = np.diff(block.full, axis=0)
    return sampled(model.residuals(block.full), most), sampled(jumps, most)


def _appended(first: tuple[Floats, Floats], other: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    return np.concatenate([first[0], other[0]]), np.concatenate([first[1], other[1]])


def _robust(values: Floats) -> Floats:
    """For each column the standard deviation that fits the median distance from the median."""
    if len(values) == 0:
        return np.ones(values.shape[1])
    usual = 1.4826 * np.median(np.abs(values - np.median(values, axis=0)), axis=0)
    return np.asarray(np.maximum(usual, 1e-3 * values.std(axis=0) + 1e-12))
