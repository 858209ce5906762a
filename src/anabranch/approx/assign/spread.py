"""The approx paper's two baselines, which spread correlated keys, or put them together."""

from __future__ import annotations

import numpy as np
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from anabranch.approx.assign.problem import Problem, Workers
from anabranch.approx.gaussian import precision_of


def h_best(problem: Problem) -> Workers:
    """Keys are dealt out in turn, with strongly correlated keys one after the other."""
    workers: Workers = [[] for _ in problem.capacities]
    turn = 0
    for key in _by_likeness(problem):
        while len(workers[turn]) >= problem.capacities[turn]:
            turn = (turn + 1) % len(workers)
        workers[turn].append(key)
        turn = (turn + 1) % len(workers)
    return workers


def h_worst(problem: Problem) -> Workers:
    """Each worker takes the next keys in a row, as many as it can."""
    order = _by_likeness(problem)
    ends = np.cumsum(problem.capacities)
    return [order[end - size : end] for end, size in zip(ends, problem.capacities, strict=True)]


def _by_likeness(problem: Problem) -> list[int]:
    if problem.keys < 2:
        return list(range(problem.keys))
    covariance = precision_of(problem.precision)
    scale = np.sqrt(np.diag(covariance))
    distance = 1 - np.abs(covariance / np.outer(scale, scale))
    np.fill_diagonal(distance, 0)
    near = squareform(np.maximum(distance, 0), checks=False)
    return [int(key) for key in leaves_list(linkage(near, "average"))]
