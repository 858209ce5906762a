"""Assignments of keys to compare ours with: the approx paper's algorithm of figure 9, and its
two baselines, which spread correlated keys apart or put them together.
"""

from __future__ import annotations

import numpy as np
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from anabranch.approx.assign.problem import AssignmentProblem, Filling, Workers
from anabranch.approx.gaussian import precision_of

DIGITS = 12
"""Reliabilities that agree so far are equal; then the first worker or key comes first."""


def greedy(problem: AssignmentProblem) -> Workers:
    """Line numbers are the figure's. One worker is set aside for keys that find no place. The
    figure has equal workers only; here `capacities` are taken in their order.
    """
    alone = np.round(problem.reliability(problem.alone()), DIGITS)
    filling = Filling(problem, problem.capacities)
    alive_keys = [key for key in range(problem.keys) if alone[key] >= problem.confidence]  # 3
    dead = 0  # 4: the worker for what cannot be estimated; those before it are full of it
    for key in sorted(set(range(problem.keys)) - set(alive_keys)):  # 5
        filling.add(dead, key)  # 6
        dead += bool(filling.full()[dead])  # 7–9
    alive = set(range(dead + 1, len(problem.capacities)))  # 10
    for key in sorted(alive_keys, key=lambda k: -alone[k]):  # 11, 12
        ratios = filling.ratios_with(key)
        after = np.round(problem.reliability(ratios), DIGITS)
        before = np.round(problem.reliability(filling.ratios()), DIGITS)
        candidates = [w for w in sorted(alive) if after[w] >= problem.confidence]  # 13
        if candidates:  # 14
            chosen = min(candidates, key=lambda w: np.round(before[w] - after[w], DIGITS))  # 15
            filling.add(chosen, key)  # 16
            if filling.full()[chosen]:  # 17
                alive.remove(chosen)  # 18, 19
        else:  # 20
            filling.add(dead, key)  # 21
        if filling.full()[dead] and alive:  # 22
            before = np.round(problem.reliability(filling.ratios()), DIGITS)
            dead = min(sorted(alive), key=lambda w: before[w])  # 24
            alive.remove(dead)  # 25
    return filling.workers()


def h_best(problem: AssignmentProblem) -> Workers:
    """Keys are dealt out in turn, with strongly correlated keys one after the other."""
    workers: Workers = [[] for _ in problem.capacities]
    turn = 0
    for key in _by_likeness(problem):
        while len(workers[turn]) >= problem.capacities[turn]:
            turn = (turn + 1) % len(workers)
        workers[turn].append(key)
        turn = (turn + 1) % len(workers)
    return workers


def h_worst(problem: AssignmentProblem) -> Workers:
    """Each worker takes the next keys in a row, as many as it can."""
    order = _by_likeness(problem)
    ends = np.cumsum(problem.capacities)
    return [order[end - size : end] for end, size in zip(ends, problem.capacities, strict=True)]


def _by_likeness(problem: AssignmentProblem) -> list[int]:
    if problem.keys < 2:
        return list(range(problem.keys))
    covariance = precision_of(problem.precision)
    scale = np.sqrt(np.diag(covariance))
    distance = 1 - np.abs(covariance / np.outer(scale, scale))
    np.fill_diagonal(distance, 0)
    near = squareform(np.maximum(distance, 0), checks=False)
    return [int(key) for key in leaves_list(linkage(near, "average"))]
