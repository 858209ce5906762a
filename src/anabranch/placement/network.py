"""What is known of the network: the sites, latency samples between them, and what sites and the
links between them can take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import shortest_path

Array = NDArray[np.float64]

UNMEASURED_S = 1.0
"""Between two sites as long as nothing at all has been measured: then traffic alone counts."""
ESTIMATED = 1.5
"""A pair that never was measured is taken to be so much farther than the way over others: what is
known to be near is preferred to what might be. Real networks often have longer direct ways."""
FAR = 2.0
"""A pair that cannot even be reached over others is taken to be so much worse than the worst."""


@dataclass(frozen=True, eq=False)
class NetworkSamples:
    """`latency[k, m, n]` is the k-th sample, the newest last, of the seconds from site m to site n;
    NaN where it was not measured. `capacity` is the load that a site still takes, without limit
    where it is not named; a site of the `speed` 2 does twice the work of one of the speed 1 under
    the same load. `bandwidth` is what a pair of sites can carry, in the unit of the links' rates;
    without limit where it is not named."""

    sites: tuple[str, ...]
    latency: Array
    capacity: Mapping[str, float] = field(default_factory=dict)
    speed: Mapping[str, float] = field(default_factory=dict)
    bandwidth: Mapping[tuple[str, str], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        n = len(self.sites)
        if self.latency.ndim != 3 or self.latency.shape[1:] != (n, n):
            raise ValueError(f"latency has the shape {self.latency.shape}, not (k, {n}, {n})")

    @classmethod
    def unmeasured(
        cls, sites: Sequence[str], capacity: Mapping[str, float] | None = None
    ) -> NetworkSamples:
        return cls(tuple(sites), np.full((1, len(sites), len(sites)), np.nan), capacity or {})

    @cached_property
    def index(self) -> dict[str, int]:
        return {site: i for i, site in enumerate(self.sites)}

    @property
    def samples(self) -> int:
        return len(self.latency)

    @cached_property
    def squares(self) -> Array:
        """The squared latency of every sample, gaps filled: (k, n, n)."""
        return np.square(filled(self.latency))

    @cached_property
    def mean_square(self) -> Array:
        """The mean over the samples: the cost of a tuple a second between two sites."""
        mean: Array = self.squares.mean(axis=0)
        return mean

    @cached_property
    def limits(self) -> Array:
        return np.array([self.capacity.get(site, np.inf) for site in self.sites])

    @cached_property
    def speeds(self) -> Array:
        return np.array([self.speed.get(site, 1.0) for site in self.sites])

    @cached_property
    def bandwidths(self) -> Array | None:
        """(n, n); None if no pair has a limit."""
        limits = np.full((len(self.sites), len(self.sites)), np.inf)
        for (sender, receiver), most in self.bandwidth.items():
            if sender in self.index and receiver in self.index:
                limits[self.index[sender], self.index[receiver]] = most
        return limits if np.isfinite(limits).any() else None

    def part(self, samples: slice) -> NetworkSamples:
        """The network with some of the samples."""
        return replace(self, latency=self.latency[samples])


def filled(latency: Array) -> Array:
    """The latencies with gaps filled by the pair's mean over the other samples. A pair that was
    never measured gets somewhat more than the shortest way over others, or than the worst.
    """
    dense = np.array(latency, dtype=np.float64)
    n = dense.shape[1]
    dense[:, np.arange(n), np.arange(n)] = 0.0
    missing = np.isnan(dense)
    if not missing.any():
        return dense
    counts = (~missing).sum(axis=0)
    sums = np.where(missing, 0.0, dense).sum(axis=0)
    mean = np.divide(sums, counts, out=np.full((n, n), np.inf), where=counts > 0)
    if np.isinf(mean).any():
        mean = _over_others(mean)
    filled_in: Array = np.where(missing, mean, dense)
    return filled_in


def _over_others(mean: Array) -> Array:
    """The shortest ways over other sites. A pair measured one way only is taken to be as far the
    other way.
    """
    known = np.minimum(mean, mean.T)
    measured = known[np.isfinite(known) & ~np.eye(len(known), dtype=bool)]
    worst = FAR * measured.max() if measured.size else UNMEASURED_S
    # An entry of 0 would be no edge at all.
    ways = shortest_path(np.where(np.isfinite(known), np.maximum(known, 1e-9), 0.0), directed=False)
    ways[np.isinf(ways)] = worst / ESTIMATED
    ways = np.where(np.isfinite(known), known, ESTIMATED * ways)
    return np.where(np.isfinite(mean), mean, ways)
