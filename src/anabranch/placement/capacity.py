"""Placements that ask of sites, and of the links between them, no more than they can take; and if
that cannot be, as little more as it comes.

What is asked too much gets a price per load and per traffic, which rises until it is not. The best
placement met is then improved vertex by vertex. If it still asks too much, so is the one that an
integer program spreads the load with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array, hstack

from anabranch.placement.costs import Sites
from anabranch.placement.network import Array
from anabranch.placement.problem import PlacementProblem

ROUNDS = 25
PATIENCE = 5
"""Rounds in a row that found nothing better."""
SOLVE_S = 20.0


@dataclass(frozen=True)
class Prices:
    """`there[v, s]` is what it costs that vertex v is at site s; `pair[m, n]` what traffic from m
    to n costs."""

    there: Array
    pair: Array | None = None


Solve = Callable[[Prices], Sites]
"""The best placement if these prices are paid as well."""


def within_capacity(problem: PlacementProblem, first: Sites, solve: Solve) -> Sites:
    """`first` if that fits, what `solve` finds without prices; else the cheapest that is found,
    with the price of what is too much."""
    if problem.fits(first):
        return first
    best = improved(problem, _priced(problem, first, solve))
    if not problem.fits(best) and np.isfinite(problem.network.limits).any():
        spread = improved(problem, _spread(problem))
        best = min(best, spread, key=problem.objective)
    return best


def _priced(problem: PlacementProblem, first: Sites, solve: Solve) -> Sites:
    """The best of what is found while what is asked too much becomes dearer (subgradients)."""
    best = sites = first
    load, flow, idle = np.zeros(len(problem.network.sites)), None, 0
    for turn in range(ROUNDS):
        steps = _load_steps(problem, sites) / (1 + turn)
        load = np.maximum(0.0, load + steps)
        flow = _flow_prices(problem, sites, flow, turn)
        sites = solve(Prices(problem.loads_at * load, flow))
        near = improved(problem, sites, len(sites))
        idle = 0 if problem.objective(near) < problem.objective(best) else idle + 1
        best = min(best, near, key=problem.objective)
        if idle > PATIENCE:
            break
    return best


def _load_steps(problem: PlacementProblem, sites: Sites) -> Array:
    """What a site asked too much of becomes dearer by, per load, and another cheaper."""
    if not problem.loads.any():
        return np.zeros(len(problem.network.sites))
    over = problem.load_of(sites) - problem.network.limits
    scale = np.where(np.isfinite(over), over, 0.0) / problem.loads.max()
    step = max(problem.cost(sites), 1e-12) / problem.loads.sum()
    steps: Array = step * np.clip(scale, -1.0, 1.0)
    return steps


def _flow_prices(
    problem: PlacementProblem, sites: Sites, before: Array | None, turn: int
) -> Array | None:
    """The same per traffic, of pairs of sites."""
    bandwidths = problem.network.bandwidths
    if bandwidths is None:
        return None
    over = problem.flows(sites) - bandwidths
    scale = np.where(np.isfinite(over), over, 0.0) / problem.costs.rate.max(initial=1e-12)
    step = max(problem.cost(sites), 1e-12) / max(problem.costs.rate.sum(), 1e-12) / (1 + turn)
    start = np.zeros_like(over) if before is None else before
    prices: Array = np.maximum(0.0, start + step * np.clip(scale, -1.0, 1.0))
    return prices


def improved(problem: PlacementProblem, sites: Sites, most: int | None = None) -> Sites:
    """Moved one by one to where all is cheaper, as long as that helps, so often at `most`."""
    sites = sites.copy()
    for _ in range(4 * len(sites) if most is None else most):
        dearer = dearer_elsewhere(problem, sites)
        if not dearer.size:
            break
        which, where = np.unravel_index(dearer.argmin(), dearer.shape)
        if dearer[which, where] >= -1e-9 * max(1e-300, problem.objective(sites)):
            break
        sites[which] = where
    return sites


def dearer_elsewhere(problem: PlacementProblem, sites: Sites) -> Array:
    """(vertices, sites): by how much all would be dearer if that vertex alone were there; infinite
    where it may not be."""
    everything = np.arange(len(sites))
    costs = local_costs(problem, sites)
    costs = costs - costs[everything, sites][:, None]
    costs += load_elsewhere(problem, sites)
    if problem.network.bandwidths is not None:
        costs += np.array([_flow_elsewhere(problem, sites, int(v)) for v in everything])
    dearer: Array = np.where(problem.allowed, costs, np.inf)
    return dearer


def local_costs(problem: PlacementProblem, sites: Sites) -> Array:
    """(vertices, sites): the cost of each vertex's links there, with all others where they are."""
    costs = problem.penalties.copy()
    for link, (a, b) in enumerate(zip(problem.producers, problem.consumers, strict=True)):
        if a != b:
            costs[a] += problem.costs.consumed_at(link, int(sites[b]))
            costs[b] += problem.costs.produced_at(link, int(sites[a]))
    return costs


def load_elsewhere(problem: PlacementProblem, sites: Sites) -> Array:
    """(vertices, sites): by how much the price of load that is too much would rise."""
    limits, loads, everything = problem.network.limits, problem.loads_at, np.arange(len(sites))
    load = problem.load_of(sites)
    local = load[sites] - loads[everything, sites]
    freed = _over(load[sites], limits[sites]) - _over(local, limits[sites])
    more = _over(load + loads, limits) - _over(load, limits)
    more[everything, sites] = freed
    rise: Array = problem.load_price * (more - freed[:, None])
    return rise


def _flow_elsewhere(problem: PlacementProblem, sites: Sites, vertex: int) -> Array:
    """(sites,): the same of traffic, if one vertex were elsewhere."""
    bandwidths = problem.network.bandwidths
    assert bandwidths is not None
    flows = problem.flows(sites)
    flow_there = np.zeros((2, *flows.shape))
    for link, other, ours in problem.neighbours()[vertex]:
        rate, at = problem.costs.rate[link], sites[other]
        flow_there[0 if ours else 1][:, at] += rate
        pair = (sites[vertex], at) if ours else (at, sites[vertex])
        flows[pair] -= rate
    rest = _over(flows, bandwidths)
    sent = _over(flows + flow_there[0], bandwidths) - rest
    taken = _over(flows + flow_there[1].T, bandwidths) - rest
    price = problem.flow_price * (sent.sum(axis=1) + taken.sum(axis=0))
    rise: Array = price - price[sites[vertex]]
    return rise


def _over(load: Array, limits: Array) -> Array:
    over: Array = np.maximum(0.0, load - limits * (1 + 1e-9))
    return over


def _spread(problem: PlacementProblem) -> Sites:
    """The placement whose sites are asked the least too much, by an integer program over (vertex,
    site) and what each site is asked too much."""
    vertices, sites = problem.allowed.shape
    pairs = np.arange(vertices * sites)
    each = csr_array((np.ones(len(pairs)), (pairs // sites, pairs)))
    loads = csr_array((problem.loads_at.ravel(), (pairs % sites, pairs)))
    over = csr_array((-np.ones(sites), (np.arange(sites), np.arange(sites))))
    none = csr_array((vertices, sites))
    solution = milp(
        np.concatenate([np.zeros(len(pairs)), np.ones(sites)]),
        constraints=[
            LinearConstraint(hstack([each, none]), 1, 1),
            LinearConstraint(hstack([loads, over]), -np.inf, problem.network.limits),
        ],
        integrality=np.concatenate([np.ones(len(pairs)), np.zeros(sites)]),
        bounds=Bounds(0, np.concatenate([problem.allowed.ravel(), np.full(sites, np.inf)])),
        options={"time_limit": SOLVE_S},
    )
    if solution.x is None:
        first: Sites = problem.allowed.argmax(axis=1)
        return first
    chosen: Sites = np.asarray(solution.x)[: len(pairs)].reshape(vertices, sites).argmax(axis=1)
    return chosen
