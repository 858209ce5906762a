"""Explains why a vertex is where it is: its share of the cost, and the cost of the next best
site.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from anabranch.placement.capacity import dearer_elsewhere, local_costs
from anabranch.placement.problem import PlacementProblem


@dataclass(frozen=True)
class Reason:
    """`cost` is that of the vertex's own links, `share` its part of the total (each link belongs
    half to either end). `worse` is by how much the total would rise if this vertex alone were at
    `runner_up`; None if it may be nowhere else. At `full` its links would cost less, and there what
    is asked would be too much."""

    vertex: str
    site: str
    cost: float
    share: float
    runner_up: str | None = None
    worse: float = 0.0
    full: str = ""

    def text(self, total: float, stays: str = "") -> str:
        """In EXPLAIN: `40% of the cost; at room2 all would cost 12% more`. `stays` is why it is not
        moved."""
        said = [f"{self.share:.0%} of the cost"]
        if self.full:
            said.append(f"{self.full} would be nearer, and is asked enough")
        if self.runner_up is not None:
            said.append(f"at {self.runner_up} all would cost {self._more(total)}")
        elif not stays:
            said.append("it may be nowhere else")
        if stays:
            said.append(f"it stays: {stays}")
        return "; ".join(said)

    def _more(self, total: float) -> str:
        more = self.worse / total if total else 0.0
        if abs(more) < 0.005:
            return "the same"
        if more < 0:  # what was measured has changed since it was placed
            return f"{-more:.0%} less"
        return f"{1 + more:.3g} times as much" if more >= 2 else f"{more:.0%} more"


def reasons(problem: PlacementProblem, sites: Mapping[str, str]) -> dict[str, Reason]:
    placed = problem.indexes(sites)
    links = problem.link_costs(placed)
    total = links.sum()
    own = np.zeros(len(problem.vertices))
    np.add.at(own, problem.producers, links / 2)
    np.add.at(own, problem.consumers, links / 2)
    costs = local_costs(problem, placed) - problem.penalties
    dearer = dearer_elsewhere(problem, placed)
    now = np.arange(len(placed)), placed
    dearer -= np.where(problem.allowed, problem.penalties - problem.penalties[now][:, None], 0.0)
    dearer[now] = np.inf
    nearer = np.where(problem.allowed, costs - costs[now][:, None], np.inf)
    found: dict[str, Reason] = {}
    for v, vertex in enumerate(problem.vertices):
        here, second, near = placed[v], int(dearer[v].argmin()), int(nearer[v].argmin())
        free = bool(np.isfinite(dearer[v][second]))
        full = free and nearer[v][near] < -1e-9 * total and dearer[v][near] > 0
        found[vertex.name] = Reason(
            vertex.name,
            problem.network.sites[here],
            float(costs[v][here]),
            float(own[v] / total) if total else 0.0,
            problem.network.sites[second] if free else None,
            float(dearer[v][second]) if free else 0.0,
            problem.network.sites[near] if full else "",
        )
    return found


def costs_elsewhere(
    problem: PlacementProblem, sites: Mapping[str, str], vertex: str
) -> dict[str, float]:
    """The cost of a vertex's links at each site that it may be at but is not: for a standby, their
    cost once it has taken over. The standby of a pinned vertex may be anywhere.
    """
    placed, v = problem.indexes(sites), problem.index[vertex]
    costs = (local_costs(problem, placed) - problem.penalties)[v]
    pinned = problem.allowed[v].sum() == 1
    return {
        site: float(costs[i])
        for i, site in enumerate(problem.network.sites)
        if (pinned or problem.allowed[v][i]) and i != placed[v]
    }
