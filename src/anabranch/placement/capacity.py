"""Placements that ask of no site more than it can take.

Sites that are asked too much get a price per load, which rises until they are not; what is still
too much is moved where it costs least. If even that fails, an integer program says whether anything
fits.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from anabranch.errors import PlacementError
from anabranch.placement.network import Array
from anabranch.placement.problem import Problem, Sites

Solve = Callable[[Array], Sites]
"""The best placement if being somewhere costs these prices (vertices, sites) as well."""
ROUNDS = 25
PATIENCE = 5
"""Rounds in a row that found nothing better."""
SOLVE_S = 20.0


def within_capacity(problem: Problem, first: Sites, solve: Solve) -> Sites:
    """`first` if that fits, what `solve` finds without prices; else the best that does. Raises
    PlacementError if nothing fits."""
    sites = first
    if problem.fits(sites):
        return sites
    best: Sites | None = None
    price = np.zeros(len(problem.network.sites))
    step = max(problem.objective(sites), 1e-12) / max(problem.loads.sum(), 1e-12)
    idle = 0
    for turn in range(ROUNDS):
        idle += 1
        for found in _repaired(problem, sites):
            if best is None or problem.objective(found) < problem.objective(best):
                best, idle = found, 0
        if idle > PATIENCE:
            break
        over = problem.load_of(sites) - problem.network.limits
        scale = np.where(np.isfinite(over), over, 0.0) / max(problem.loads.max(), 1e-12)
        price = np.maximum(0.0, price + step / (1 + turn) * np.clip(scale, -1.0, 1.0))
        sites = solve(problem.loads[:, None] * price)
    return _improved(problem, best if best is not None else _anything(problem))


def _repaired(problem: Problem, sites: Sites) -> list[Sites]:
    """The same with what is too much moved elsewhere; nothing if that fails."""
    sites = sites.copy()
    for _ in range(len(problem.vertices)):
        over = problem.overloaded(sites)
        if not over.any():
            return [sites]
        movable = np.flatnonzero(over[sites] & (problem.loads > 0))
        dearer = _dearer(problem, sites, movable) / problem.loads[movable, None]
        if not np.isfinite(dearer).any():
            return []
        which, where = np.unravel_index(dearer.argmin(), dearer.shape)
        sites[movable[which]] = where
    return []


def _dearer(problem: Problem, sites: Sites, vertices: Sites) -> Array:
    """By how much each would be dearer at each other site that has room for it; else infinite."""
    costs = local_costs(problem, sites)[vertices]
    room = problem.network.limits - problem.load_of(sites)
    fits = room[None, :] * (1 + 1e-9) >= problem.loads[vertices, None]
    fits[np.arange(len(vertices)), sites[vertices]] = False
    now = costs[np.arange(len(vertices)), sites[vertices]]
    dearer: Array = np.where(fits & problem.allowed[vertices], costs - now[:, None], np.inf)
    return dearer


def local_costs(problem: Problem, sites: Sites) -> Array:
    """(vertices, sites): what each vertex's links would cost there, all others staying."""
    square, costs = problem.network.mean_square, problem.penalties.copy()
    for rate, a, b in zip(problem.rates, problem.producers, problem.consumers, strict=True):
        if a != b:
            costs[a] += rate * square[:, sites[b]]
            costs[b] += rate * square[sites[a], :]
    return costs


def _improved(problem: Problem, sites: Sites) -> Sites:
    """Moved one by one to where it is cheaper and there is room, as long as that helps."""
    sites = sites.copy()
    everything = np.arange(len(sites))
    for _ in range(4 * len(sites)):
        dearer = _dearer(problem, sites, everything)
        which, where = np.unravel_index(dearer.argmin(), dearer.shape)
        if dearer[which, where] >= -1e-12 * max(1.0, problem.objective(sites)):
            break
        sites[which] = where
    return sites


def _anything(problem: Problem) -> Sites:
    """Any placement that fits, by an integer program over (vertex, site)."""
    vertices, sites = problem.allowed.shape
    pairs = np.arange(vertices * sites)
    each = csr_array((np.ones(len(pairs)), (pairs // sites, pairs)))
    loads = csr_array((np.repeat(problem.loads, sites), (pairs % sites, pairs)))
    found = milp(
        np.zeros(len(pairs)),
        constraints=[
            LinearConstraint(each, 1, 1),
            LinearConstraint(loads, -np.inf, problem.network.limits),
        ],
        integrality=np.ones(len(pairs)),
        bounds=Bounds(0, problem.allowed.ravel().astype(float)),
        options={"time_limit": SOLVE_S},
    )
    if found.x is None:
        raise _too_much(problem)
    chosen: Sites = np.asarray(found.x).reshape(vertices, sites).argmax(axis=1)
    return chosen


def _too_much(problem: Problem) -> PlacementError:
    pinned = problem.allowed.sum(axis=1) == 1
    forced = np.bincount(
        problem.allowed.argmax(axis=1)[pinned],
        weights=problem.loads[pinned],
        minlength=len(problem.network.sites),
    )
    limits = problem.network.limits
    for site in np.flatnonzero(forced > limits * (1 + 1e-9)):
        return PlacementError(
            f"what must be at {problem.network.sites[site]} takes {forced[site]:.3g} of its"
            f" capacity, and {limits[site]:.3g} is free",
            remedy="Let some of it be elsewhere, or give the site more capacity.",
        )
    return PlacementError(
        f"the operators take {problem.loads.sum():.3g} of the sites' capacity, and the"
        f" {limits.sum():.3g} that is free cannot hold them",
        remedy="Add a site, or give the sites more capacity.",
    )
