"""Random placement problems, and the best placement by trying all of them."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import strategies as st

from anabranch.placement.costs import Sites
from anabranch.placement.network import NetworkSamples
from anabranch.placement.problem import Link, PlacementProblem, Rate, Vertex


def network(
    rng: np.random.Generator, sites: int, samples: int = 1, gaps: float = 0.0
) -> NetworkSamples:
    latency = rng.exponential(0.1, (samples, sites, sites))
    latency[rng.random(latency.shape) < gaps] = np.nan
    return NetworkSamples(tuple(f"s{i}" for i in range(sites)), latency)


def tree(
    rng: np.random.Generator,
    net: NetworkSamples,
    operators: int,
    *,
    pockets: bool = False,
    extra: int = 0,
    penalty: float = 0.0,
    varying: bool = False,
) -> PlacementProblem:
    """Operators below each other at random, sources pinned at the leaves, the sink pinned at the
    root; `extra` links make it re-merge. Rates are others in each sample, if they are `varying`."""
    names = list(net.sites)

    def rate() -> Rate:
        return rng.exponential(size=net.samples) if varying else float(rng.exponential())

    def anywhere() -> str:
        return str(rng.choice(names))

    vertices = [Vertex("sink", "sink", frozenset({anywhere()}))]
    links = []
    for i in range(operators):
        kind = "pocket" if pockets and i == operators - 1 else "operator"
        allowed = None
        if rng.random() < 0.3:
            allowed = frozenset(rng.choice(names, size=min(2, len(names)), replace=False).tolist())
        at = anywhere() if penalty and kind == "operator" else None
        vertices.append(Vertex(f"o{i}", kind, allowed, at))  # type: ignore[arg-type]
        reader = vertices[int(rng.integers(0, i + 1))].name
        links.append(Link(f"o{i}", reader, rate()))
    for i in range(operators):
        if rng.random() < 0.7:
            vertices.append(Vertex(f"i{i}", "source", frozenset({anywhere()})))
            links.append(Link(f"i{i}", f"o{i}", rate()))
    for _ in range(extra):
        a, b = sorted(rng.choice(operators, size=2, replace=False).tolist())
        links.append(Link(f"o{b}", f"o{a}", rate()))
    return PlacementProblem(vertices, links, net, penalty)


def brute_force(problem: PlacementProblem) -> tuple[Sites, float]:
    """The placement of the lowest objective."""
    choices = [np.flatnonzero(row) for row in problem.allowed]
    all_of_them = np.array(list(product(*choices)), dtype=np.intp)
    costs = problem.link_costs(all_of_them).sum(axis=1)
    costs += problem.penalties[np.arange(all_of_them.shape[1]), all_of_them].sum(axis=1)
    costs += [problem.excess(one) for one in all_of_them]
    best = int(costs.argmin())
    return all_of_them[best], float(costs[best])


seeds = st.integers(0, 2**32 - 1)
