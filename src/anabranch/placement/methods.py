"""The placers: each takes a problem and gives a placement that keeps its pins; and its capacities,
if that can be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from anabranch.errors import ConfigError, PlacementError
from anabranch.placement import METHODS
from anabranch.placement.capacity import Prices, within_capacity
from anabranch.placement.costs import Sites
from anabranch.placement.elimination import Elimination, with_pockets
from anabranch.placement.problem import Placement, PlacementProblem, placement
from anabranch.placement.sweep import landmark_squares, search, sweep


class Placer(Protocol):
    @property
    def name(self) -> str: ...

    def place(self, problem: PlacementProblem) -> Placement: ...


@dataclass(frozen=True)
class Dp:
    """Exact, over the sum of all samples: trees, and plans that re-merge a little."""

    name: str = "dp"

    def place(self, problem: PlacementProblem) -> Placement:
        exact = _exact(problem)
        if exact is None:
            raise PlacementError(
                "this plan re-merges too much to be placed exactly",
                remedy='Use method = "search", or "best" for whichever does.',
            )
        return exact


def _exact(problem: PlacementProblem) -> Placement | None:
    """The exact placement; None if the plan re-merges too much."""

    def solve(pinned: PlacementProblem, prices: Prices | None = None) -> Sites | None:
        return Elimination(pinned, prices).run()

    def priced(prices: Prices) -> Sites:
        sites = solve(pinned, prices)
        assert sites is not None, "prices change no table's size"
        return sites

    best = solve(problem)
    if best is None:
        return None
    pinned = with_pockets(problem, best)
    first = best if pinned is problem else solve(pinned)
    assert first is not None, "pins make tables smaller"
    sites = within_capacity(pinned, first, priced)
    return placement(pinned, sites, "dp", exact=bool((sites == best).all()))


@dataclass(frozen=True)
class Search:
    """Good, over the sum of all samples: any plan. Never worse than the sweeps."""

    name: str = "search"
    seed: int = 1

    def place(self, problem: PlacementProblem) -> Placement:
        best = search(problem, seed=self.seed)
        pinned = with_pockets(problem, best)
        first = best if pinned is problem else search(pinned, seed=self.seed)
        sites = within_capacity(pinned, first, lambda prices: search(pinned, prices, self.seed))
        return placement(pinned, sites, self.name)


@dataclass(frozen=True)
class Best:
    """Exact where that is possible, otherwise by search."""

    name: str = "best"

    def place(self, problem: PlacementProblem) -> Placement:
        return _exact(problem) or Search().place(problem)


@dataclass(frozen=True)
class Sbon:
    """The paper's sweeps (Pietzuch et al., 2006) over the mean of the samples; with `landmarks`, by
    coordinates in the latency space that they span.
    """

    name: str = "sbon"
    landmarks: int = 0

    def place(self, problem: PlacementProblem) -> Placement:
        squares = problem.network.mean_square[None]
        if self.landmarks:
            squares = landmark_squares(squares, self.landmarks)
        swept = sweep(problem, squares, problem.costs.rate[None])[0]
        return placement(problem, within_capacity(problem, swept, lambda _: swept), self.name)


@dataclass(frozen=True)
class Vote:
    """The paper's robust placement (4.3): the sweeps on each sample of latencies and rates, and
    every vertex to the site that won most often; of equals the first."""

    name: str = "vote"
    landmarks: int = 0

    def place(self, problem: PlacementProblem) -> Placement:
        squares = problem.network.squares
        if self.landmarks:
            squares = landmark_squares(squares, self.landmarks)
        votes = sweep(problem, squares, problem.rates)
        count = len(problem.network.sites)
        won = [int(np.bincount(one, minlength=count).argmax()) for one in votes.T]
        elected = np.array(won, dtype=np.intp)
        return placement(problem, within_capacity(problem, elected, lambda _: elected), self.name)


PLACERS: dict[str, Placer] = {
    one.name: one
    for one in (
        Best(),
        Dp(),
        Search(),
        Sbon(),
        Vote(),
        Sbon("sbon-landmarks", landmarks=3),
        Vote("vote-landmarks", landmarks=3),
    )
}
assert tuple(PLACERS) == METHODS


def placer(name: str) -> Placer:
    try:
        return PLACERS[name]
    except KeyError:
        known = ", ".join(PLACERS)
        raise ConfigError(
            f"unknown placement method '{name}'", remedy=f"There are {known}."
        ) from None
