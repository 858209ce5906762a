"""Past windows in blocks of time, wherever these are: lessons are sums over blocks.

A block holds the values that came (NaN: missing, or taken out as a glitch) and the same with
nothing missing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Protocol, TypeVar

import numpy as np

from anabranch.approx.gaussian import Floats

V = TypeVar("V")


@dataclass(frozen=True)
class Block:
    known: Floats
    full: Floats


class History(Protocol):
    """A history of at least one block. `look` and `change` may run elsewhere."""

    def map(self, change: Callable[[Block], Block]) -> History: ...

    def fold(self, look: Callable[[Block], V], merge: Callable[[V, V], V]) -> V: ...


class Here:
    """A history whose blocks are in this process."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        self._blocks = blocks

    def map(self, change: Callable[[Block], Block]) -> Here:
        return Here([change(block) for block in self._blocks])

    def fold(self, look: Callable[[Block], V], merge: Callable[[V, V], V]) -> V:
        return reduce(merge, map(look, self._blocks))


@dataclass(frozen=True)
class Moments:
    """The moments of the full windows: their number, mean, and summed products of distances from
    it.
    """

    count: int
    mean: Floats
    scatter: Floats

    def __add__(self, other: Moments) -> Moments:
        count = self.count + other.count
        if not count:
            return self
        away = other.mean - self.mean
        between = np.outer(away, away) * (self.count * other.count / count)
        return Moments(
            count,
            self.mean + away * (other.count / count),
            self.scatter + other.scatter + between,
        )


def moments(block: Block) -> Moments:
    full = block.full
    mean = full.mean(axis=0) if len(full) else np.zeros(full.shape[1])
    return Moments(len(full), mean, (full - mean).T @ (full - mean))


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


def sums(block: Block) -> Sums:
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
