"""The paper's placement for one sample: sweeps from the sources, each operator to its best site.

Many samples are swept at once, each with its own placement.
"""

from __future__ import annotations

import numpy as np

from anabranch.placement.costs import Sites
from anabranch.placement.network import Array
from anabranch.placement.problem import Problem

MOST_SWEEPS = 50


def sweep_means(problem: Problem) -> Sites:
    """The sweeps on one sample, the mean of all."""
    swept: Sites = sweep(problem, problem.network.mean_square[None], problem.costs.rate[None])[0]
    return swept


def sweep(problem: Problem, squares: Array, rates: Array) -> Sites:
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


def from_sources(problem: Problem) -> list[int]:
    """The vertices, each behind those it reads; a cycle's are taken as they come."""
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
    problem: Problem,
    squares: Array,
    rates: Array,
    sites: Sites,
    vertex: int,
    links: list[tuple[int, int, bool]],
) -> Sites:
    """The best site of one vertex in each sample, the others being where they are."""
    rows = np.arange(len(squares))
    costs = np.where(problem.allowed[vertex], problem.penalties[vertex], np.inf)
    costs = np.repeat(costs[None], len(squares), axis=0)
    for link, other, ours in links:
        there = sites[:, other]
        far = squares[rows, :, there] if ours else squares[rows, there, :]
        costs += rates[:, link, None] * far
    best: Sites = costs.argmin(axis=1)
    return best


def _totals(problem: Problem, squares: Array, rates: Array, sites: Sites) -> Array:
    rows = np.arange(len(squares))[:, None]
    links = squares[rows, sites[:, problem.producers], sites[:, problem.consumers]]
    moves = problem.penalties[np.arange(sites.shape[1]), sites].sum(axis=1)
    totals: Array = (links * rates).sum(axis=1) + moves
    return totals


def landmark_squares(squares: Array, landmarks: int) -> Array:
    """Squared distances in the latency space that so many landmark sites span: a site's coordinates
    are its latencies to them. Each next landmark is the site farthest from those before it."""
    latency = np.sqrt(squares)
    found = np.empty_like(squares)
    for sample, far in zip(found, latency, strict=True):
        chosen = [int(far.sum(axis=1).argmax())]
        while len(chosen) < min(landmarks, len(far)):
            chosen.append(int(far[:, chosen].min(axis=1).argmax()))
        where = far[:, chosen]
        sample[:] = np.square(where[:, None, :] - where[None, :, :]).sum(axis=2)
    return found
