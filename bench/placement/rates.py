"""Rates of sources over time: steady, by the time of the day, in bursts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from anabranch.placement.network import Array

DAY = 24
"""Samples: one an hour."""
BURST, BEGINS, ENDS = 20.0, 0.05, 0.3
"""A burst is so many times the usual rate, and begins and ends with these chances a sample."""
Series = Callable[[np.random.Generator, int], Array]


def steady(rng: np.random.Generator, samples: int) -> Array:
    return np.full(samples, _usual(rng))


def daily(rng: np.random.Generator, samples: int) -> Array:
    """Between a twentieth and twice the usual rate, each source with a noon of its own, and a tenth
    of noise."""
    noon = rng.uniform(0, DAY)
    phase = 2 * np.pi * (np.arange(samples) - noon) / DAY
    shape = 0.05 + 1.95 * np.square((1 + np.cos(phase)) / 2)
    noisy: Array = _usual(rng) * shape * rng.gamma(100, 0.01, samples)
    return noisy


def bursts(rng: np.random.Generator, samples: int) -> Array:
    found = np.full(samples, _usual(rng))
    bursting = rng.random() < BEGINS / (BEGINS + ENDS)
    for sample in range(samples):
        if bursting:
            found[sample] *= BURST
        bursting = rng.random() >= ENDS if bursting else rng.random() < BEGINS
    return found


def _usual(rng: np.random.Generator) -> float:
    return float(rng.lognormal(3, 1))


RATES: dict[str, Series] = {"steady": steady, "daily": daily, "bursts": bursts}
