"""Finds a good placement fast: each operator goes where it does least harm, then simulated
annealing.

The number of steps is fixed and the random numbers come from a fixed seed, so the same problem has
the same answer, on any machine.
"""

from __future__ import annotations

from math import exp

import numpy as np

from anabranch.deadline.energy import Energy
from anabranch.deadline.plan import TRAFFIC_WEIGHT
from anabranch.deadline.problem import Problem

STEPS_PER_OPERATOR = 150
MOST_STEPS = 40_000
COLDEST = 1e-3
POLISH_PER_OPERATOR = 10
"""Steps that are left for traffic once nothing else is to be gained."""


def anneal(problem: Problem) -> dict[str, str]:
    """A placement; its deadlines may not hold."""
    energy = Energy(problem)
    choices = [
        [energy.site_names.index(site) for site in operator.sites] for operator in energy.operators
    ]
    _greedy(problem, energy, choices)
    free = [n for n, sites in enumerate(choices) if len(sites) > 1]
    if not free:
        return energy.placement()
    return _cool(energy, choices, free, min(MOST_STEPS, STEPS_PER_OPERATOR * len(free)))


def _greedy(problem: Problem, energy: Energy, choices: list[list[int]]) -> None:
    """Places pinned operators first, then the densest."""
    ideal: dict[str, float] = {}
    for (_, name), value in problem.ideal.items():
        ideal[name] = min(value, ideal.get(name, value))

    def key(n: int) -> tuple[bool, float, int]:
        operator = energy.operators[n]
        return len(choices[n]) > 1, -operator.cost / ideal.get(operator.name, 1.0), n

    for n in sorted(range(len(choices)), key=key):
        best = min(choices[n], key=lambda site: (_tried(energy, n, site), site))
        energy.move(n, best)


def _tried(energy: Energy, operator: int, site: int) -> float:
    energy.move(operator, site)
    return energy.total()


def _cool(energy: Energy, choices: list[list[int]], free: list[int], steps: int) -> dict[str, str]:
    """The best placement seen. Once nothing but traffic is left, only what lowers it is
    accepted.
    """
    random = np.random.default_rng(1)
    who = random.integers(0, len(free), steps)
    where = random.random(steps)
    luck = random.random(steps)
    now = lowest = energy.total()
    best = energy.placement()
    hottest = max(1e-2, min(now, 1e3) / len(free))
    polish = POLISH_PER_OPERATOR * len(free)
    for step in range(steps):
        if now <= TRAFFIC_WEIGHT:
            polish -= 1
        if not polish:
            break
        operator = free[who[step]]
        before = energy.at[operator]
        sites = choices[operator]
        site = sites[int(where[step] * len(sites))]
        if site == before:
            continue
        energy.move(operator, site)
        then = energy.total()
        warmth = hottest * (COLDEST / hottest) ** (step / steps)
        worse = then - now
        if worse <= 0 or (now > TRAFFIC_WEIGHT and luck[step] < exp(-min(worse / warmth, 700))):
            now = then
            if now < lowest - 1e-12:
                lowest, best = now, energy.placement()
        else:
            energy.move(operator, before)
    return best
