"""Every method with its own re-placement on the same plans and samples, against somebody who knows
the samples to come; and pockets against the best site in hindsight."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from anabranch.placement.costs import Sites
from anabranch.placement.elimination import Elimination
from anabranch.placement.methods import placer
from anabranch.placement.network import Array, NetworkSamples, filled
from anabranch.placement.problem import MOVE_PENALTY, PlacementProblem
from bench.placement import matrices
from bench.placement.queries import query
from bench.placement.rates import RATES

Progress = Callable[[str], None]
Row = dict[str, Any]
METHODS = ("best", "sbon", "vote", "sbon-landmarks", "vote-landmarks")
PAPER = ("sbon", "vote", "sbon-landmarks", "vote-landmarks")
"""Methods that move whatever their rule moves: a move costs them nothing in advance."""
HISTORY, RECENT, FOLLOWING = 100, 12, 40
"""k samples that pockets and all else are placed by first, the i newest ones by which operators are
placed again at each of so many that follow."""
VARIED = ((5, 12), (20, 12), (100, 1), (100, 4), (100, 40))
"""Other k and i."""
OPERATORS = 30
LARGE, LARGE_HISTORY = (1000, 200), 20
"""Sites and operators of the largest plans, and their samples."""


@dataclass(frozen=True)
class World:
    """Latencies over time, and how rates vary."""

    data: str
    latency: Array
    rates: str

    def plan(self, rng: np.random.Generator, *, pockets: int, remerging: bool = False) -> Future:
        """A random plan over a random piece of the time."""
        length = HISTORY + FOLLOWING
        begin = int(rng.integers(0, len(self.latency) - length + 1))
        names = tuple(f"s{i}" for i in range(self.latency.shape[1]))
        network = NetworkSamples(names, self.latency[begin : begin + length])
        series = RATES[self.rates]
        drawn = query(rng, network, OPERATORS, remerging=remerging, pockets=pockets, rates=series)
        return Future(drawn)


@dataclass(frozen=True)
class Life:
    """What a plan cost over the samples that followed, whose operators moved so often a sample;
    `pockets` are the sites of its pockets."""

    cost: float
    moves: float
    pockets: Sites
    seconds: float


class Future:
    """A plan whose samples are all known: HISTORY, then those that follow."""

    def __init__(self, problem: PlacementProblem) -> None:
        self.problem = problem
        count = problem.network.samples
        self._moments = [problem.part(slice(t, t + 1)) for t in range(HISTORY, count)]

    @property
    def pockets(self) -> list[int]:
        return [v for v, one in enumerate(self.problem.vertices) if one.kind == "pocket"]

    def cost(self, sites: Sites, moment: int) -> float:
        """Of the links, at the moment-th sample that follows."""
        return self._moments[moment].cost(sites)

    def live(self, method: str, history: int = HISTORY, recent: int = RECENT) -> Life:
        """Placed by the last samples before, then again by the newest before each that follows."""
        begun = time.perf_counter()
        past = self.problem.part(slice(HISTORY - history, HISTORY))
        now = past.indexes(placer(method).place(past).sites)
        took = time.perf_counter() - begun
        pockets, cost, moves = now[self.pockets], 0.0, 0
        for moment in range(len(self._moments)):
            cost += self.cost(now, moment)
            there = self._again(method, now, HISTORY + moment + 1, recent)
            moves += int((there != now).sum())
            now = there
        assert (now[self.pockets] == pockets).all(), "a pocket never moves"
        return Life(cost, moves / len(self._moments), pockets, took)

    def _again(self, method: str, now: Sites, end: int, recent: int) -> Sites:
        seen = self.problem.part(slice(end - recent, end))
        names = self.problem.network.sites
        vertices = [replace(one, at=names[now[v]]) for v, one in enumerate(self.problem.vertices)]
        penalty = 0.0 if method in PAPER else MOVE_PENALTY
        again = replace(seen, vertices=vertices, move_penalty=penalty)
        return again.indexes(placer(method).place(again).sites)

    @cached_property
    def fixed(self) -> float:
        """What the placement costs that is best in hindsight of all that never move."""
        after = self.problem.part(slice(HISTORY, None))
        return len(self._moments) * _least(after)

    @cached_property
    def clairvoyant(self) -> Life:
        """Each pocket where it is best in hindsight, the others staying; operators placed exactly,
        and for nothing, for each sample."""
        begun = time.perf_counter()
        start = self.problem.part(slice(HISTORY, None))
        sites = start.indexes(placer("best").place(start).sites)
        for _ in range(5):
            before = sites.copy()
            for pocket in self.pockets:
                sites[pocket] = self.hindsight(pocket, sites).argmin()
            if (before == sites).all():
                break
        cost = self.lowest(sites[self.pockets])
        return Life(cost, 0.0, sites[self.pockets], time.perf_counter() - begun)

    def hindsight(self, pocket: int, sites: Sites) -> Array:
        """What all samples that follow would cost with the pocket at each site, the others being
        where they are and operators placed for each sample."""
        free = [v for v in range(len(sites)) if v == pocket or v not in self.pockets]
        total = np.zeros(len(self.problem.network.sites))
        for one in self._moments:
            costs = Elimination(one, None, sites, free).marginal(pocket, largest=30_000_000)
            assert costs is not None, "the plan is a tree"
            total += costs
        return total

    def lowest(self, pockets: Sites) -> float:
        """The least that all samples that follow can cost with the pockets at these sites."""
        names = self.problem.network.sites
        vertices = list(self.problem.vertices)
        for v, site in zip(self.pockets, pockets, strict=True):
            vertices[v] = replace(vertices[v], sites=frozenset({names[site]}))
        return sum(_least(replace(one, vertices=vertices)) for one in self._moments)


def _least(problem: PlacementProblem) -> float:
    """The exact optimum, or where that cannot be had the best that any method finds."""
    sites = Elimination(problem).run(largest=30_000_000)
    if sites is not None:
        return problem.cost(sites)
    return min(placer(one).place(problem).cost for one in ("search", "sbon"))


def run(progress: Progress, data: Path | None, trials: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    rows: list[Row] = []
    for world in _worlds(progress, rng, data):
        for pockets in (0, 2):
            progress(f"{world.data}, {world.rates}: {trials} trees with {pockets} pockets …")
            rows += _compare(rng, world, trials, pockets)
    last = world
    progress(f"{last.data}: {trials} plans that re-merge …")
    rows += _compare(rng, last, trials, 0, remerging=True)
    progress(f"{last.data}: other k and i …")
    varied = _varied(rng, last, trials)
    progress(f"{LARGE[0]:,} sites, {LARGE[1]} operators …")
    return {
        "history": HISTORY,
        "recent": RECENT,
        "following": FOLLOWING,
        "trials": trials,
        "penalty": MOVE_PENALTY,
        "rows": rows,
        "varied": varied,
        "large": _large(rng),
    }


def _worlds(progress: Progress, rng: np.random.Generator, data: Path | None) -> Iterator[World]:
    length = 4 * (HISTORY + FOLLOWING)
    static = matrices.generated(rng, 60, length, slow=0.0)
    yield World("static", static, "steady")
    latency = {"generated": matrices.generated(rng, 60, length)}
    if data:
        progress(f"Reading {data} …")
        latency[data.resolve().name] = filled(matrices.read(data))
    for name, found in latency.items():
        for rates in RATES:
            yield World(name, found, rates)


def _compare(
    rng: np.random.Generator, world: World, trials: int, pockets: int, *, remerging: bool = False
) -> list[Row]:
    methods = (*METHODS, "search") if remerging else METHODS
    lives: dict[str, list[Life]] = {method: [] for method in methods}
    regrets: dict[str, list[float]] = {method: [] for method in methods}
    ideal, fixed = [], []
    for _ in range(trials):
        future = world.plan(rng, pockets=pockets, remerging=remerging)
        ideal.append(future.clairvoyant.cost)
        fixed.append(future.fixed)
        for method in methods:
            life = future.live(method)
            lives[method].append(life)
            if pockets:
                regrets[method].append(future.lowest(life.pockets) / ideal[-1])
    plan = "re-merging" if remerging else f"{pockets} pockets" if pockets else "tree"
    said = {"data": world.data, "rates": world.rates, "plan": plan, "sites": world.latency.shape[1]}
    return [
        {
            **said,
            "method": method,
            "to_fixed": _ratio(lives[method], fixed),
            "to_vote": _ratio(lives[method], [life.cost for life in lives["vote"]]),
            **_said(lives[method], ideal, regrets[method]),
        }
        for method in methods
    ]


def _ratio(lives: Sequence[Life], others: Sequence[float]) -> float | None:
    return _median([life.cost / other for life, other in zip(lives, others, strict=True)])


def _said(lives: Sequence[Life], ideal: Sequence[float], regrets: Sequence[float]) -> Row:
    costs = [life.cost / best for life, best in zip(lives, ideal, strict=True)]
    return {
        "cost": _median(costs),
        "cost_p95": _high(costs),
        "moves_per_sample": float(np.mean([life.moves for life in lives])),
        "pocket_regret": _median(regrets),
        "pocket_regret_p95": _high(regrets),
        "seconds": _median([life.seconds for life in lives]),
    }


def _varied(rng: np.random.Generator, world: World, trials: int) -> list[Row]:
    """The same plans with other numbers of samples."""
    futures = [world.plan(rng, pockets=2) for _ in range(trials)]
    rows = []
    for history, recent in ((HISTORY, RECENT), *VARIED):
        for method in ("best", "vote"):
            costs, regrets = [], []
            for future in futures:
                life = future.live(method, history, recent)
                costs.append(life.cost / future.clairvoyant.cost)
                regrets.append(future.lowest(life.pockets) / future.clairvoyant.cost)
            found = {"cost": _median(costs), "pocket_regret": _median(regrets)}
            rows.append({"k": history, "i": recent, "method": method, **found})
    return rows


def _large(rng: np.random.Generator) -> list[Row]:
    """How long it takes, all that is made of the samples included."""
    sites, operators = LARGE
    latency = matrices.generated(rng, sites, LARGE_HISTORY)
    names = tuple(f"s{i}" for i in range(sites))
    rows = []
    for remerging in (False, True):
        drawn = query(
            rng,
            NetworkSamples(names, latency),
            operators,
            remerging=remerging,
            rates=RATES["bursts"],
        )
        exact = None
        for method in ("best", "search", "sbon", "vote"):
            fresh = replace(drawn, network=NetworkSamples(names, latency))
            begun = time.perf_counter()
            found = placer(method).place(fresh)
            seconds = time.perf_counter() - begun
            exact = exact or found.cost
            plan = "re-merging" if remerging else "tree"
            said = {"plan": plan, "method": method, "cost": found.cost / exact}
            rows.append({**said, "sites": sites, "operators": operators, "seconds": seconds})
    return rows


def _median(values: Sequence[float]) -> float | None:
    return float(np.median(values)) if values else None


def _high(values: Sequence[float]) -> float | None:
    return float(np.percentile(values, 95)) if values else None
