"""The paper's placement by sweeps from the sources, and search for plans that re-merge too much
for elimination.

Many samples are swept at once, each with its own placement.

A round fixes enough vertices where they are for the rest to be a forest, and places that forest
exactly. It can only get better; the next round draws another forest. It starts from the paper's
sweeps, so that it is never worse than they are.
"""

from __future__ import annotations

import numpy as np

from anabranch.placement.capacity import Prices
from anabranch.placement.costs import Sites
from anabranch.placement.elimination import Elimination
from anabranch.placement.network import Array
from anabranch.placement.problem import PlacementProblem

MOST_SWEEPS = 50


def sweep_means(problem: PlacementProblem) -> Sites:
    """The sweeps on one sample, the mean of all."""
    swept: Sites = sweep(problem, problem.network.mean_square[None], problem.costs.rate[None])[0]
    return swept


def sweep(problem: PlacementProblem, squares: Array, rates: Array) -> Sites:
    """(samples, vertices), by squared latencies (samples, sites, sites) and rates (samples, links):
    every operator starts at the site nearest its inputs; then each in turn goes where its links
    cost least, until the total falls no more."""
    order = from_sources(problem)
    neighbours = problem.neighbours()
    sites = np.empty((len(squares), len(problem.vertices)), dtype=np.intp)
    done: set[int] = set()
    for vertex in order:
        inputs = [one for one in neighbours[vertex] if not one[2] and one[1] in done]
        sites[:, vertex] = _cheapest(problem, squares, rates, sites, vertex, inputs)
        done.add(vertex)
    total = _totals(problem, squares, rates, sites)
    moving = [v for v in order if problem.allowed[v].sum() > 1]
    for _ in range(MOST_SWEEPS):
        for vertex in moving:
            sites[:, vertex] = _cheapest(problem, squares, rates, sites, vertex, neighbours[vertex])
        now = _totals(problem, squares, rates, sites)
        if not (now < total * (1 - 1e-12)).any():
            break
        total = now
    return sites


def from_sources(problem: PlacementProblem) -> list[int]:
    """The vertices, each after those it reads; those of a cycle are in any order."""
    left = dict.fromkeys(range(len(problem.vertices)))
    reads: list[set[int]] = [set() for _ in left]
    for a, b in zip(problem.producers.tolist(), problem.consumers.tolist(), strict=True):
        reads[b].add(a)
    order: list[int] = []
    while left:
        ready = [v for v in left if not (reads[v] & left.keys()) - {v}] or list(left)[:1]
        order += ready
        for vertex in ready:
            del left[vertex]
    return order


def _cheapest(
    problem: PlacementProblem,
    squares: Array,
    rates: Array,
    sites: Sites,
    vertex: int,
    links: list[tuple[int, int, bool]],
) -> Sites:
    """The best site of one vertex in each sample, with the others where they are."""
    rows = np.arange(len(squares))
    costs = np.where(problem.allowed[vertex], problem.penalties[vertex], np.inf)
    costs = np.repeat(costs[None], len(squares), axis=0)
    for link, other, ours in links:
        sites_of_other = sites[:, other]
        far = squares[rows, :, sites_of_other] if ours else squares[rows, sites_of_other, :]
        costs += rates[:, link, None] * far
    best: Sites = costs.argmin(axis=1)
    return best


def _totals(problem: PlacementProblem, squares: Array, rates: Array, sites: Sites) -> Array:
    rows = np.arange(len(squares))[:, None]
    links = squares[rows, sites[:, problem.producers], sites[:, problem.consumers]]
    moves = problem.penalties[np.arange(sites.shape[1]), sites].sum(axis=1)
    totals: Array = (links * rates).sum(axis=1) + moves
    return totals


def landmark_squares(squares: Array, landmarks: int) -> Array:
    """Squared distances in the latency space that this many landmark sites span: a site's
    coordinates are its latencies to them. Each next landmark is the site farthest from those before
    it.
    """
    latency = np.sqrt(squares)
    result = np.empty_like(squares)
    for sample, far in zip(result, latency, strict=True):
        chosen = [int(far.sum(axis=1).argmax())]
        while len(chosen) < min(landmarks, len(far)):
            chosen.append(int(far[:, chosen].min(axis=1).argmax()))
        where = far[:, chosen]
        sample[:] = np.square(where[:, None, :] - where[None, :, :]).sum(axis=2)
    return result


PATIENCE = 4
"""Rounds in a row that found nothing, before it begins from somewhere else."""
STARTS = 3
MOST_ROUNDS = 40
MOST_CELLS = 500_000_000
"""Cells of all tables together, so that the largest problems take seconds."""


def search(problem: PlacementProblem, prices: Prices | None = None, seed: int = 1) -> Sites:
    rng = np.random.default_rng(seed)
    free = [v for v in range(len(problem.vertices)) if problem.allowed[v].sum() > 1]
    best: Sites = sweep_means(problem)
    if not free:
        return best
    cells = max(1, len(free) * len(problem.network.sites) ** 2)
    rounds = max(2, min(MOST_ROUNDS * STARTS, MOST_CELLS // cells))
    lowest = _value(problem, best, prices)
    sites = best
    for _ in range(STARTS):
        if rounds <= 0:
            break
        sites, value, used = _descend(problem, sites, free, prices, rng, rounds)
        rounds -= used
        if value < lowest * (1 - 1e-12):
            best, lowest = sites, value
        sites = _kicked(problem, best, free, rng)
    return best


def _value(problem: PlacementProblem, sites: Sites, prices: Prices | None) -> float:
    """The value without excess load: prices exist for that."""
    everything = np.arange(len(sites))
    value = problem.cost(sites) + problem.penalties[everything, sites].sum()
    if prices:
        value += prices.there[everything, sites].sum()
        if prices.pair is not None:
            value += (problem.flows(sites) * prices.pair).sum()
    return float(value)


def _descend(
    problem: PlacementProblem,
    sites: Sites,
    free: list[int],
    prices: Prices | None,
    rng: np.random.Generator,
    rounds: int,
) -> tuple[Sites, float, int]:
    """Runs rounds until several in a row found nothing better."""
    value, idle, used = _value(problem, sites, prices), 0, 0
    while idle < PATIENCE and used < min(rounds, MOST_ROUNDS):
        forest = _forest(problem, free, rng)
        better = Elimination(problem, prices, sites, forest).run()
        assert better is not None, "a forest's tables are small"
        used += 1
        now = _value(problem, better, prices)
        idle = 0 if now < value * (1 - 1e-9) else idle + 1
        if now < value:
            sites, value = better, now
    return sites, value, used


def _forest(problem: PlacementProblem, free: list[int], rng: np.random.Generator) -> list[int]:
    """As many vertices as possible between which the links form no cycle."""
    neighbours = problem.neighbours()
    root: dict[int, int] = {}

    def find(vertex: int) -> int:
        while root[vertex] != vertex:
            vertex = root[vertex]
        return vertex

    for vertex in rng.permutation(free).tolist():
        near = {other for _, other, _ in neighbours[vertex] if other in root}
        trees = {find(other) for other in near}
        if len(trees) == len(near):
            root[vertex] = vertex
            for tree in trees:
                root[tree] = vertex
    return sorted(root)


def _kicked(
    problem: PlacementProblem, sites: Sites, free: list[int], rng: np.random.Generator
) -> Sites:
    """The placement with some vertices at the site of one of their neighbours, or anywhere."""
    kicked = sites.copy()
    neighbours = problem.neighbours()
    for vertex in rng.choice(free, size=max(1, len(free) // 4), replace=False).tolist():
        allowed = np.flatnonzero(problem.allowed[vertex])
        near = [int(sites[other]) for _, other, _ in neighbours[vertex]]
        pick = int(rng.choice(near)) if near else -1
        kicked[vertex] = pick if pick in allowed else int(rng.choice(allowed))
    return kicked
