"""What is to be placed, as data: vertices, the links between them, and the network below.

The cost of a placement is Σ rate · latency² over the links, each counted once, as a mean over the
samples of both (Pietzuch et al., 2006), and `move_penalty` × the present cost for every vertex that
moves. What is asked of sites and of pairs of sites beyond what they can take has a price.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from anabranch.errors import PlacementError
from anabranch.placement.costs import LinkCosts, Sites
from anabranch.placement.network import Array, NetworkSamples

MOVE_PENALTY = 0.03
"""Of the present cost, for every vertex that moves: what the system takes when it places anew."""
OVERLOAD = 10.0
"""If all work or all traffic were too much, that would cost so many times what all links cost
between sites taken at random. So a limit is exceeded only if nothing else can be had, or if keeping
it would cost far more than it is worth."""
NEVER_QUITE_ZERO = 1e-9
"""Of the largest rate: a link that carries nothing now still rather is short."""


@dataclass(frozen=True)
class Vertex:
    """A source, an operator, a pocket or a sink.

    `sites` are those it may be at, None for any. `at` is where it is now; a pocket that is
    somewhere stays there. `load` is what it takes of the capacity of a site of speed 1.
    """

    name: str
    kind: Literal["source", "operator", "pocket", "sink"] = "operator"
    sites: frozenset[str] | None = None
    at: str | None = None
    load: float = 0.0


Rate = float | Array
"""A second: always the same, or one for each sample of the network."""


@dataclass(frozen=True, eq=False)
class Link:
    """A stream from one vertex to another, `rate` a second (bytes or tuples, the same for all)."""

    producer: str
    consumer: str
    rate: Rate


@dataclass(frozen=True, eq=False)
class PlacementProblem:
    """Raises PlacementError if a vertex has no site to go to."""

    vertices: Sequence[Vertex]
    links: Sequence[Link]
    network: NetworkSamples
    move_penalty: float = 0.0

    def __post_init__(self) -> None:
        if not self.network.sites:
            raise PlacementError("there is no site to place anything at", remedy="Start one.")
        for vertex, allowed in zip(self.vertices, self.allowed, strict=True):
            if not allowed.any():
                raise _nowhere(vertex)

    @cached_property
    def index(self) -> dict[str, int]:
        return {vertex.name: i for i, vertex in enumerate(self.vertices)}

    @cached_property
    def allowed(self) -> NDArray[np.bool_]:
        """(vertices, sites): whether the vertex may be there."""
        allowed = np.ones((len(self.vertices), len(self.network.sites)), dtype=bool)
        for row, vertex in zip(allowed, self.vertices, strict=True):
            wanted = {vertex.at} if vertex.kind == "pocket" and vertex.at else vertex.sites
            if wanted is not None:
                row[:] = [site in wanted for site in self.network.sites]
        return allowed

    @cached_property
    def producers(self) -> Sites:
        return np.array([self.index[link.producer] for link in self.links], dtype=np.intp)

    @cached_property
    def consumers(self) -> Sites:
        return np.array([self.index[link.consumer] for link in self.links], dtype=np.intp)

    @cached_property
    def rates(self) -> Array:
        """(samples, links)."""
        rates = np.empty((self.network.samples, len(self.links)))
        for column, link in zip(rates.T, self.links, strict=True):
            column[:] = link.rate
        top = rates.max(initial=0.0)
        return np.maximum(rates, NEVER_QUITE_ZERO * top if top else 1.0)

    @cached_property
    def costs(self) -> LinkCosts:
        return LinkCosts(self.rates, self.network)

    @cached_property
    def loads(self) -> Array:
        return np.array([vertex.load for vertex in self.vertices], dtype=np.float64)

    @cached_property
    def present(self) -> Sites:
        """The present site of each vertex, or the only possible one; -1 if it has none, or is at a
        site that is gone.
        """
        places = [self.network.index.get(vertex.at or "", -1) for vertex in self.vertices]
        pinned = np.where(self.allowed.sum(axis=1) == 1, self.allowed.argmax(axis=1), -1)
        at = np.array(places, dtype=np.intp)
        return np.where(at >= 0, at, pinned)

    @cached_property
    def penalties(self) -> Array:
        """(vertices, sites): the cost of a vertex there, whatever the others do."""
        costs = np.zeros(self.allowed.shape)
        if self.move_penalty:
            placed = self.present >= 0
            both = placed[self.producers] & placed[self.consumers]
            now = self.link_costs(self.present)[both].sum()
            costs[placed] = self.move_penalty * now
            costs[np.flatnonzero(placed), self.present[placed]] = 0.0
        return costs

    def link_costs(self, sites: Sites) -> Array:
        """The cost of each link under a placement; `sites` may be a stack of placements."""
        return self.costs.between(sites[..., self.producers], sites[..., self.consumers])

    def cost(self, sites: Sites) -> float:
        """The cost of the links alone: what a placement costs once it is in place."""
        return float(self.link_costs(sites).sum())

    def objective(self, sites: Sites) -> float:
        """The number that a placer minimises."""
        moves = self.penalties[np.arange(len(self.vertices)), sites].sum()
        return self.cost(sites) + float(moves) + self.excess(sites)

    def part(self, samples: slice) -> PlacementProblem:
        """The same by some of the samples."""
        links = [
            link if np.ndim(link.rate) == 0 else replace(link, rate=np.asarray(link.rate)[samples])
            for link in self.links
        ]
        return replace(self, links=links, network=self.network.part(samples))

    @cached_property
    def random_cost(self) -> float:
        """The cost of all links, each between two different sites taken at random."""
        count = len(self.network.sites)
        far = self.network.mean_square.sum() / max(1, count * (count - 1))
        return float(self.costs.rate.sum() * far)

    @cached_property
    def load_price(self) -> float:
        """The price of a unit of load that is too much."""
        total = self.loads.sum()
        return OVERLOAD * (self.random_cost or 1.0) / float(total) if total else 0.0

    @cached_property
    def flow_price(self) -> float:
        """The price of a unit of traffic that is too much."""
        total = self.costs.rate.sum()
        return OVERLOAD * (self.random_cost or 1.0) / float(total) if total else 0.0

    def neighbours(self) -> list[list[tuple[int, int, bool]]]:
        """For each vertex its links: (link, the vertex at the other end, whether this one produces
        it).
        """
        links_of: list[list[tuple[int, int, bool]]] = [[] for _ in self.vertices]
        for link, (a, b) in enumerate(zip(self.producers, self.consumers, strict=True)):
            if a != b:
                links_of[a].append((link, int(b), True))
                links_of[b].append((link, int(a), False))
        return links_of

    @cached_property
    def loads_at(self) -> Array:
        """(vertices, sites): the load that each would be there."""
        loads: Array = self.loads[:, None] / self.network.speeds
        return loads

    def load_of(self, sites: Sites) -> Array:
        """The load of each site under a placement."""
        mine = self.loads_at[np.arange(len(sites)), sites]
        loads = np.bincount(sites, weights=mine, minlength=len(self.network.sites))
        return loads.astype(np.float64)

    def flows(self, sites: Sites) -> Array:
        """(sites, sites): what a placement sends from one to another."""
        count = len(self.network.sites)
        pairs = sites[self.producers] * count + sites[self.consumers]
        flows = np.bincount(pairs, weights=self.costs.rate, minlength=count * count)
        return flows.astype(np.float64).reshape(count, count)

    def excess(self, sites: Sites) -> float:
        """The price of all that is too much."""
        over = np.maximum(0.0, self.load_of(sites) - self._limits).sum() * self.load_price
        bandwidths = self.network.bandwidths
        if bandwidths is not None:
            over += np.maximum(0.0, self.flows(sites) - bandwidths).sum() * self.flow_price
        return float(over)

    def fits(self, sites: Sites) -> bool:
        return self.excess(sites) == 0.0

    @cached_property
    def _limits(self) -> Array:
        """The limits, with room for rounding."""
        limits: Array = self.network.limits * (1 + 1e-9)
        return limits

    def indexes(self, sites: Mapping[str, str]) -> Sites:
        places = [self.network.index[sites[vertex.name]] for vertex in self.vertices]
        return np.array(places, dtype=np.intp)

    def named(self, sites: Sites) -> dict[str, str]:
        return dict(self._pairs(sites))

    def _pairs(self, sites: Sites) -> Iterator[tuple[str, str]]:
        for vertex, site in zip(self.vertices, sites, strict=True):
            yield vertex.name, self.network.sites[site]


@dataclass(frozen=True)
class Placement:
    """`cost` is that of the links; `exact` says that no placement has a lower objective."""

    sites: Mapping[str, str]
    cost: float
    method: str
    exact: bool = False

    def moves(self, problem: PlacementProblem) -> dict[str, tuple[str, str]]:
        """Vertex → its former and its new site, for those that had a site and move."""
        return {
            one.name: (one.at, self.sites[one.name])
            for one in problem.vertices
            if one.at is not None and one.at != self.sites[one.name]
        }


def placement(
    problem: PlacementProblem, sites: Sites, method: str, *, exact: bool = False
) -> Placement:
    return Placement(problem.named(sites), problem.cost(sites), method, exact)


def _nowhere(vertex: Vertex) -> PlacementError:
    if vertex.kind == "pocket" and vertex.at:
        return PlacementError(
            f"{vertex.name} is at {vertex.at}, which is not there, and a pocket never moves",
            remedy=f"Start {vertex.at} again.",
        )
    wanted = " or ".join(sorted(vertex.sites or ())) or "no site at all"
    return PlacementError(
        f"{vertex.name} may only be at {wanted}, which is not there",
        remedy="Start that site, or allow others.",
    )
