"""What is to be placed, as data: vertices, the links between them, and the network below.

The cost of a placement is Σ rate · latency² over the links, each counted once, as a mean over the
network's latency samples (Pietzuch et al., 2006), and `move_penalty` × the present cost for every
vertex that moves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from anabranch.errors import PlacementError
from anabranch.placement.network import Array, Network

Sites = NDArray[np.intp]
"""A placement by index: the site of each vertex."""

MOVE_PENALTY = 0.1
"""Of the present cost, for every vertex that moves: what the system takes when it places anew."""
NEVER_QUITE_ZERO = 1e-9
"""Of the largest rate: a link that carries nothing now still rather is short."""


@dataclass(frozen=True)
class Vertex:
    """A source, an operator, a pocket or a sink.

    `sites` are those it may be at, None for any. `at` is where it is now; a pocket that is
    somewhere stays there. `load` is what it takes of its site's capacity.
    """

    name: str
    kind: Literal["source", "operator", "pocket", "sink"] = "operator"
    sites: frozenset[str] | None = None
    at: str | None = None
    load: float = 0.0


@dataclass(frozen=True)
class Link:
    """A stream from one vertex to another, `rate` a second (bytes or tuples, the same for all)."""

    producer: str
    consumer: str
    rate: float


@dataclass(frozen=True, eq=False)
class Problem:
    """Raises PlacementError if a vertex has no site to go to."""

    vertices: Sequence[Vertex]
    links: Sequence[Link]
    network: Network
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
        """(vertices, sites): may it be there?"""
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
        rates = np.array([link.rate for link in self.links], dtype=np.float64)
        top = rates.max(initial=0.0)
        return np.maximum(rates, NEVER_QUITE_ZERO * top if top else 1.0)

    @cached_property
    def loads(self) -> Array:
        return np.array([vertex.load for vertex in self.vertices], dtype=np.float64)

    @cached_property
    def present(self) -> Sites:
        """Where each vertex is now, or has to be; -1 if nowhere, or at a site that is gone."""
        found = [self.network.index.get(vertex.at or "", -1) for vertex in self.vertices]
        pinned = np.where(self.allowed.sum(axis=1) == 1, self.allowed.argmax(axis=1), -1)
        at = np.array(found, dtype=np.intp)
        return np.where(at >= 0, at, pinned)

    @cached_property
    def penalties(self) -> Array:
        """(vertices, sites): what it costs that a vertex is there, whatever the others do."""
        costs = np.zeros(self.allowed.shape)
        if self.move_penalty:
            there = self.present >= 0
            both = there[self.producers] & there[self.consumers]
            now = self.link_costs(self.present)[both].sum()
            costs[there] = self.move_penalty * now
            costs[np.flatnonzero(there), self.present[there]] = 0.0
        return costs

    def link_costs(self, sites: Sites) -> Array:
        """Of each link under a placement; `sites` may be a stack of placements."""
        square = self.network.mean_square
        costs: Array = self.rates * square[sites[..., self.producers], sites[..., self.consumers]]
        return costs

    def cost(self, sites: Sites) -> float:
        """Of the links alone: what a placement costs once it is there."""
        return float(self.link_costs(sites).sum())

    def objective(self, sites: Sites) -> float:
        """What a placer minimises."""
        moves = self.penalties[np.arange(len(self.vertices)), sites].sum()
        return self.cost(sites) + float(moves)

    def neighbours(self) -> list[list[tuple[int, int, bool]]]:
        """Of each vertex its links: (link, the vertex at the other end, do we produce it?)."""
        found: list[list[tuple[int, int, bool]]] = [[] for _ in self.vertices]
        for link, (a, b) in enumerate(zip(self.producers, self.consumers, strict=True)):
            if a != b:
                found[a].append((link, int(b), True))
                found[b].append((link, int(a), False))
        return found

    def load_of(self, sites: Sites) -> Array:
        """What a placement asks of each site."""
        asked = np.bincount(sites, weights=self.loads, minlength=len(self.network.sites))
        return asked.astype(np.float64)

    def fits(self, sites: Sites) -> bool:
        return not self.overloaded(sites).any()

    def overloaded(self, sites: Sites) -> NDArray[np.bool_]:
        over: NDArray[np.bool_] = self.load_of(sites) > self.network.limits * (1 + 1e-9)
        return over

    def indexes(self, sites: Mapping[str, str]) -> Sites:
        found = [self.network.index[sites[vertex.name]] for vertex in self.vertices]
        return np.array(found, dtype=np.intp)

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

    def moves(self, problem: Problem) -> dict[str, tuple[str, str]]:
        """Vertex → from where to where, of those that were somewhere."""
        return {
            one.name: (one.at, self.sites[one.name])
            for one in problem.vertices
            if one.at is not None and one.at != self.sites[one.name]
        }


def placement(problem: Problem, sites: Sites, method: str, *, exact: bool = False) -> Placement:
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
