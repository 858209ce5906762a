"""What links cost between any two sites, by equation (1) of the placement paper, per sample.

The cost of a link over k samples is Σₖ rateₖ · latencyₖ² / k: rate and latency of the same moment
belong together. A product of their means would miss that a stream is busy just when the network is
slow.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anabranch.placement.network import Array, NetworkSamples

Sites = NDArray[np.intp]
"""A placement by index: the site of each vertex."""

LARGEST_STORE = 60_000_000
"""Cells of tables that are kept for links whose rates vary alike."""


class LinkCosts:
    """`rates[k, l]` is the rate of link l in the k-th sample; `rate` their means."""

    def __init__(self, rates: Array, network: NetworkSamples) -> None:
        self._rates = rates
        self._network = network
        self.rate: Array = rates.mean(axis=0) if len(rates) else rates.sum(axis=0)
        self._shapes = rates / self.rate
        self._steady = np.abs(self._shapes - 1.0).max(axis=0, initial=0.0) < 1e-9
        self._units: dict[bytes, Array] = {}

    def unit(self, link: int) -> Array:
        """(n, n): what a mean rate of 1 costs, if it varies over the samples as that link's."""
        if self._steady[link]:
            return self._network.mean_square
        shape = self._shapes[:, link]
        key = np.round(shape, 9).tobytes()
        if key not in self._units:
            if (len(self._units) + 1) * self._network.mean_square.size > LARGEST_STORE:
                self._units.clear()
            table: Array = np.tensordot(shape, self._network.squares, 1) / len(shape)
            self._units[key] = table
        return self._units[key]

    def produced_at(self, link: int, site: int) -> Array:
        """(n,): what the link costs from there to each site."""
        return self._row(link, self._network.squares[:, site, :], site, 0)

    def consumed_at(self, link: int, site: int) -> Array:
        """(n,): what the link costs from each site to there."""
        return self._row(link, self._network.squares[:, :, site], site, 1)

    def _row(self, link: int, squares: Array, site: int, axis: int) -> Array:
        if self._steady[link]:
            steady: Array = self.rate[link] * self._network.mean_square.take(site, axis)
            return steady
        row: Array = self._rates[:, link] @ squares / len(squares)
        return row

    def between(self, producers: Sites, consumers: Sites) -> Array:
        """(…, links): what each link costs between its two sites, for a stack of placements."""
        squares = self._network.squares
        total = np.zeros(producers.shape)
        for rates, square in zip(self._rates, squares, strict=True):
            total += rates * square[producers, consumers]
        return total / max(1, len(squares))
