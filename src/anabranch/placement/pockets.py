"""Where pockets go: a two-stage problem, since operators may move later and pockets may not.

A pocket is at the site where the sum over the samples is lowest if all operators are placed anew
for each of them. Samples are taken in blocks, as re-placement looks at several at a time.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from anabranch.placement.capacity import load_elsewhere
from anabranch.placement.costs import Sites
from anabranch.placement.elimination import Elimination
from anabranch.placement.network import Array
from anabranch.placement.problem import Problem

BLOCKS = 8
TURNS = 5


def with_pockets(problem: Problem, start: Sites) -> Problem:
    """The same with every pocket pinned. `start` is a placement of everything at once; where the
    plan re-merges too much to do better, its pockets stay."""
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


def _blocks(problem: Problem) -> list[Problem]:
    samples = np.arange(problem.network.samples)
    parts = np.array_split(samples, min(BLOCKS, len(samples)))
    return [problem.part(slice(int(part[0]), int(part[-1]) + 1)) for part in parts]


def _costs(
    problem: Problem, blocks: list[Problem], sites: Sites, pockets: list[int], pocket: int
) -> Array | None:
    """Of the pocket at each site, the other pockets staying, operators being placed per block; and
    the price of what its load would be too much there."""
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


def _pinned(problem: Problem, sites: Sites, pockets: list[int]) -> Problem:
    vertices = list(problem.vertices)
    for pocket in pockets:
        where = frozenset({problem.network.sites[sites[pocket]]})
        vertices[pocket] = replace(vertices[pocket], sites=where)
    return replace(problem, vertices=vertices)
