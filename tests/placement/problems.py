"""Random placement problems, and the best placement by trying all of them."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import strategies as st

from anabranch.placement.network import Network
from anabranch.placement.problem import Link, Problem, Sites, Vertex


def network(rng: np.random.Generator, sites: int, samples: int = 1, gaps: float = 0.0) -> Network:
    latency = rng.exponential(0.1, (samples, sites, sites))
    latency[rng.random(latency.shape) < gaps] = np.nan
    return Network(tuple(f"s{i}" for i in range(sites)), latency)


def tree(
    rng: np.random.Generator,
    net: Network,
    operators: int,
    *,
    pockets: bool = False,
    extra: int = 0,
    penalty: float = 0.0,
) -> Problem:
    """Operators below each other at random, sources pinned at the leaves, the sink pinned at the
    root; `extra` links make it re-merge."""
    names = list(net.sites)

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
        links.append(Link(f"o{i}", reader, float(rng.exponential())))
    for i in range(operators):
        if rng.random() < 0.7:
            vertices.append(Vertex(f"i{i}", "source", frozenset({anywhere()})))
            links.append(Link(f"i{i}", f"o{i}", float(rng.exponential())))
    for _ in range(extra):
        a, b = sorted(rng.choice(operators, size=2, replace=False).tolist())
        links.append(Link(f"o{b}", f"o{a}", float(rng.exponential())))
    return Problem(vertices, links, net, penalty)


def brute_force(problem: Problem) -> tuple[Sites, float] | None:
    """The best placement that fits; None if there is none."""
    choices = [np.flatnonzero(row) for row in problem.allowed]
    all_of_them = np.array(list(product(*choices)), dtype=np.intp)
    costs = problem.link_costs(all_of_them).sum(axis=1)
    costs += problem.penalties[np.arange(all_of_them.shape[1]), all_of_them].sum(axis=1)
    fits = np.array([problem.fits(one) for one in all_of_them])
    if not fits.any():
        return None
    best = int(np.where(fits, costs, np.inf).argmin())
    return all_of_them[best], float(costs[best])


seeds = st.integers(0, 2**32 - 1)
