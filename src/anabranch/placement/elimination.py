"""Exact minimisation by elimination: dynamic programming over (operator, site); and where
pockets go, in two stages, since operators may move later and pockets may not.

On a tree every table has two axes at most. A plan that re-merges needs one more for every path that
is open at a time; where the tables would be too large there is no exact answer here.

A pocket is at the site where the sum over the samples is lowest if all operators are placed anew
for each sample. Samples are taken in blocks, as re-placement looks at several at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from anabranch.placement.capacity import Prices, load_elsewhere
from anabranch.placement.costs import Sites
from anabranch.placement.network import Array
from anabranch.placement.problem import PlacementProblem

LARGEST_TABLE = 4_000_000
Adjacent = dict[int, set[int]]
_Factor = tuple[tuple[int, ...], Array]
"""Vertices, and a cost for each combination of their choices."""


@dataclass(frozen=True)
class _Step:
    """`best` is the choice of `vertex`, by index, for each combination of the vertices after it."""

    vertex: int
    behind: tuple[int, ...]
    best: NDArray[np.intp]


class Elimination:
    """`alone[v]` is the cost of vertex v at each of its `choices`, whatever the others do; `pairs`
    are the links between vertices that have a choice."""

    def __init__(
        self,
        problem: PlacementProblem,
        prices: Prices | None = None,
        fixed: Sites | None = None,
        free: Sequence[int] | None = None,
    ) -> None:
        """With `fixed`, only the vertices in `free` may change. `prices` are paid as well."""
        self._problem = problem
        self._pair_price = prices.pair if prices else None
        costs = problem.penalties + prices.there if prices else problem.penalties
        changing = set(range(len(problem.vertices)) if free is None else free)
        self._choices = [
            np.flatnonzero(problem.allowed[v])
            if v in changing or fixed is None
            else fixed[v : v + 1]
            for v in range(len(problem.vertices))
        ]
        self._alone = {v: costs[v][self._choices[v]] for v in range(len(problem.vertices))}
        self._pairs: dict[tuple[int, int], list[int]] = {}
        self._gather()

    def _gather(self) -> None:
        """Gathers the costs. Links to a vertex without a choice only make sites dearer for the
        other.
        """
        single = [len(choices) == 1 for choices in self._choices]
        problem = self._problem
        for link, (a, b) in enumerate(
            zip(problem.producers.tolist(), problem.consumers.tolist(), strict=True)
        ):
            if a == b or (single[a] and single[b]):
                continue
            if single[a]:
                row = self._row(link, int(self._choices[a][0]), ours=True)
                self._alone[b] = self._alone[b] + row[self._choices[b]]
            elif single[b]:
                row = self._row(link, int(self._choices[b][0]), ours=False)
                self._alone[a] = self._alone[a] + row[self._choices[a]]
            else:
                self._pairs.setdefault((min(a, b), max(a, b)), []).append(link)

    def _row(self, link: int, site: int, *, ours: bool) -> Array:
        """What a link costs whose producer (if it is `ours`) or consumer is at a site, by the site
        of the other."""
        costs = self._problem.costs
        row = costs.produced_at(link, site) if ours else costs.consumed_at(link, site)
        if self._pair_price is None:
            return row
        price = self._pair_price[site] if ours else self._pair_price[:, site]
        priced: Array = row + costs.rate[link] * price
        return priced

    def run(self, largest: int = LARGEST_TABLE) -> Sites | None:
        """The best placement; None if a table would be larger than `largest`."""
        done = self._eliminate(largest)
        if done is None:
            return None
        steps, _ = done
        chosen = np.array([choices[0] for choices in self._choices], dtype=np.intp)
        at = np.zeros(len(self._choices), dtype=np.intp)
        for step in reversed(steps):
            at[step.vertex] = step.best[tuple(at[v] for v in step.behind)]
            chosen[step.vertex] = self._choices[step.vertex][at[step.vertex]]
        return chosen

    def marginal(self, vertex: int, largest: int = LARGEST_TABLE) -> Array | None:
        """The lowest cost of all else for each site that `vertex` may be at, infinite elsewhere."""
        done = self._eliminate(largest, kept=vertex)
        if done is None:
            return None
        _, factors = done
        costs = np.full(len(self._problem.network.sites), np.inf)
        mine = [table for scope, table in factors if scope == (vertex,)]
        costs[self._choices[vertex]] = np.add.reduce([self._alone[vertex], *mine])
        return costs

    def _eliminate(
        self, largest: int, kept: int | None = None
    ) -> tuple[list[_Step], list[_Factor]] | None:
        """Eliminates all vertices but `kept`, those with the fewest neighbours first; returns the
        steps and the factors that are left.
        """
        adjacent = self._adjacent()
        factors: list[_Factor] = []
        steps: list[_Step] = []
        left = self._with_choice()
        if kept is not None:
            left.discard(kept)
        while left:
            vertex, behind = _next(left, adjacent)
            if self._size(vertex, behind) > largest:
                return None
            mine = [one for one in factors if vertex in one[0]]
            factors = [one for one in factors if vertex not in one[0]]
            best, lowest = self._best(vertex, behind, mine)
            steps.append(_Step(vertex, behind, best))
            factors.append((behind, lowest))
            _drop(vertex, behind, left, adjacent)
        return steps, factors

    def _adjacent(self) -> Adjacent:
        adjacent: Adjacent = {v: set() for v in self._alone}
        for a, b in self._pairs:
            adjacent[a].add(b)
            adjacent[b].add(a)
        return adjacent

    def _with_choice(self) -> set[int]:
        return {v for v, choices in enumerate(self._choices) if len(choices) > 1}

    def _size(self, vertex: int, behind: tuple[int, ...]) -> int:
        return prod(len(self._choices[v]) for v in (vertex, *behind))

    def _best(
        self, vertex: int, behind: tuple[int, ...], factors: list[_Factor]
    ) -> tuple[NDArray[np.intp], Array]:
        """The best choice of `vertex` for each combination of those after it, and its cost."""
        if len(behind) == 1 and all(scope == (vertex,) for scope, _ in factors):
            return self._best_of_leaf(vertex, behind[0], [costs for _, costs in factors])
        table = self._table(vertex, behind, factors)
        best = table.argmin(axis=0)
        return best, np.take_along_axis(table, best[None], axis=0)[0]

    def _best_of_leaf(
        self, vertex: int, other: int, factors: list[Array]
    ) -> tuple[NDArray[np.intp], Array]:
        """The best choice as on a tree: one sum over all pairs of sites and one search for the
        smallest.
        """
        alone = np.add.reduce([self._alone[vertex], *factors])
        first, *rest = self._pairs[min(vertex, other), max(vertex, other)]
        rate = self._problem.costs.rate[first]
        table = self._square_of(first, other, vertex) + (alone / rate)[None, :]
        for link in rest:
            table += self._problem.costs.rate[link] / rate * self._square_of(link, other, vertex)
        best = table.argmin(axis=1)
        return best, rate * table[np.arange(len(table)), best]

    def _table(self, vertex: int, behind: tuple[int, ...], factors: list[_Factor]) -> Array:
        """The cost of `vertex` at each site, for each combination of those after it."""
        axes = (vertex, *behind)
        alone = self._alone[vertex].reshape(-1, *(1 for _ in behind))
        table: Array = np.zeros(tuple(len(self._choices[v]) for v in axes)) + alone
        for other in behind:
            for link in self._pairs.get((min(vertex, other), max(vertex, other)), ()):
                costs = self._problem.costs.rate[link] * self._square_of(link, vertex, other)
                table += _spread(costs, (vertex, other), axes)
        for scope, costs in factors:
            table += _spread(costs, scope, axes)
        return table

    def _square_of(self, link: int, vertex: int, other: int) -> Array:
        """The squared latency for each choice of the two vertices."""
        own_choices, other_choices = self._choices[vertex], self._choices[other]
        unit = self._problem.costs.unit(link)
        if self._pair_price is not None:
            unit = unit + self._pair_price
        square = unit if self._problem.producers[link] == vertex else unit.T
        if len(own_choices) < len(square) or len(other_choices) < len(square):
            square = square[np.ix_(own_choices, other_choices)]
        return square


def _next(left: set[int], adjacent: Adjacent) -> tuple[int, tuple[int, ...]]:
    """The vertex with the fewest neighbours left, and these."""
    vertex = min(left, key=lambda v: (len(adjacent[v]), v))
    return vertex, tuple(sorted(adjacent[vertex]))


def _drop(vertex: int, behind: tuple[int, ...], left: set[int], adjacent: Adjacent) -> None:
    """Removes the vertex; from now on its table joins the vertices after it."""
    left.remove(vertex)
    for other in behind:
        adjacent[other] |= set(behind) - {other}
        adjacent[other].discard(vertex)


def _spread(table: Array, scope: tuple[int, ...], axes: tuple[int, ...]) -> Array:
    """The table of some vertices with an axis for each of `axes`."""
    order = sorted(range(len(scope)), key=lambda i: axes.index(scope[i]))
    shape = [1] * len(axes)
    for i in order:
        shape[axes.index(scope[i])] = table.shape[i]
    spread: Array = table.transpose(order).reshape(shape)
    return spread


BLOCKS = 8
TURNS = 5


def with_pockets(problem: PlacementProblem, start: Sites) -> PlacementProblem:
    """The problem with every pocket pinned. `start` is a placement of everything at once; where the
    plan re-merges too much to do better, its pockets stay.
    """
    pockets = [
        v
        for v, one in enumerate(problem.vertices)
        if one.kind == "pocket" and problem.allowed[v].sum() > 1
    ]
    if not pockets:
        return problem
    sites = start.copy()
    blocks = _blocks(problem)
    for _ in range(TURNS):
        before = sites.copy()
        for pocket in pockets:
            costs = _costs(problem, blocks, sites, pockets, pocket)
            if costs is None:
                return _pinned(problem, start, pockets)
            if costs.min() < costs[sites[pocket]] * (1 - 1e-12):
                sites[pocket] = costs.argmin()
        if (sites == before).all():
            break
    return _pinned(problem, sites, pockets)


def _blocks(problem: PlacementProblem) -> list[PlacementProblem]:
    samples = np.arange(problem.network.samples)
    parts = np.array_split(samples, min(BLOCKS, len(samples)))
    return [problem.part(slice(int(part[0]), int(part[-1]) + 1)) for part in parts]


def _costs(
    problem: PlacementProblem,
    blocks: list[PlacementProblem],
    sites: Sites,
    pockets: list[int],
    pocket: int,
) -> Array | None:
    """The costs of the pocket at each site, with the other pockets where they are and operators
    placed per block; with the price of load that would be too much there.
    """
    others = set(pockets) - {pocket}
    free = [v for v in range(len(sites)) if v not in others]
    dearer = load_elsewhere(problem, sites)[pocket]
    total: Array = len(blocks) * (dearer - dearer.min())
    for block in blocks:
        costs = Elimination(block, None, sites, free).marginal(pocket)
        if costs is None:
            return None
        total += costs
    return total


def _pinned(problem: PlacementProblem, sites: Sites, pockets: list[int]) -> PlacementProblem:
    vertices = list(problem.vertices)
    for pocket in pockets:
        where = frozenset({problem.network.sites[sites[pocket]]})
        vertices[pocket] = replace(vertices[pocket], sites=where)
    return replace(problem, vertices=vertices)
