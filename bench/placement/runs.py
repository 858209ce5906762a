"""Every method on the same queries and samples: how near the optimum, how good over the samples
that follow, and what re-placement saves with how many moves."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from anabranch.placement.elimination import Elimination
from anabranch.placement.methods import Placer, placer
from anabranch.placement.network import Array, NetworkSamples, filled
from anabranch.placement.problem import MOVE_PENALTY, Placement, PlacementProblem
from bench.placement import matrices
from bench.placement.queries import query

Progress = Callable[[str], None]
Row = dict[str, Any]
METHODS = ("best", "search", "sbon", "vote", "sbon-landmarks", "vote-landmarks")
SAMPLES = 20
"""That a placement is made from."""
FOLLOWING = 10
STEPS = 40
"""Samples over which operators are placed anew, one by one."""
LARGE = (1000, 200)
"""Sites and operators of the largest plans."""
MOVING = ("best", "sbon", "vote")


@dataclass
class Tally:
    ratios: list[float] = field(default_factory=list)
    regrets: list[float] = field(default_factory=list)
    following: list[float] = field(default_factory=list)
    moves: list[float] = field(default_factory=list)
    saved: list[tuple[float, float]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


def run(progress: Progress, data: Path | None, trials: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    series: dict[str, Array] = {"generated": matrices.generated(rng, 100, 200)}
    if data:
        progress(f"Reading {data} …")
        series[data.resolve().name] = matrices.read(data)
    rows: list[Row] = []
    follow: dict[str, float] = {}
    for name, latency in series.items():
        latency = filled(latency)
        for kind in ("tree", "re-merging"):
            progress(f"{name}: {trials} {kind} plans of 30 operators …")
            tallies = _trials(rng, latency, 30, kind == "re-merging", trials)
            rows += [
                _row(name, kind, latency.shape[1], 30, method, tally)
                for method, tally in tallies.items()
            ]
            if kind == "tree":
                means = {m: float(np.mean(t.following)) for m, t in tallies.items()}
                follow[name] = means["best"] / means["vote"]
    progress(f"{LARGE[0]:,} sites, {LARGE[1]} operators …")
    rows += _large(rng)
    return {
        "samples": SAMPLES,
        "following": FOLLOWING,
        "trials": trials,
        "penalty": MOVE_PENALTY,
        "following_best_to_vote": follow,
        "rows": rows,
    }


def _trials(
    rng: np.random.Generator, latency: Array, operators: int, remerging: bool, trials: int
) -> dict[str, Tally]:
    names = tuple(f"s{i}" for i in range(latency.shape[1]))
    tallies = {method: Tally() for method in METHODS}
    for _ in range(trials):
        begin = int(rng.integers(0, len(latency) - SAMPLES - max(FOLLOWING, STEPS) + 1))
        window = latency[begin : begin + SAMPLES + max(FOLLOWING, STEPS)]
        problem = query(
            rng, NetworkSamples(names, window[:SAMPLES]), operators, remerging=remerging
        )
        exact = _lowest(problem)
        ideal = [
            _lowest(_at(problem, window[SAMPLES + i : SAMPLES + i + 1])) for i in range(FOLLOWING)
        ]
        for method, tally in tallies.items():
            found, seconds = _timed(placer(method), problem)
            later = [_cost(problem, found, one) for one in window[SAMPLES:][:FOLLOWING]]
            tally.seconds.append(seconds)
            tally.ratios.append(found.cost / exact if exact else 1.0)
            tally.following.append(float(np.sum(later) / np.sum(ideal)))
            tally.regrets.append(tally.following[-1] - 1.0)
            if method in MOVING and not remerging:
                _follow(tally, placer(method), problem, found, window)
    return tallies


def _lowest(problem: PlacementProblem) -> float:
    """The exact optimum, or where that cannot be had the best that any method finds."""
    sites = Elimination(problem).run(largest=30_000_000)
    if sites is not None:
        return problem.cost(sites)
    return min(placer(one).place(problem).cost for one in ("search", "sbon"))


def _at(problem: PlacementProblem, samples: Array) -> PlacementProblem:
    return replace(problem, network=NetworkSamples(problem.network.sites, samples))


def _cost(problem: PlacementProblem, found: Placement, sample: Array) -> float:
    sites = problem.indexes(found.sites)
    square = np.square(sample)
    return float(
        (problem.costs.rate * square[sites[problem.producers], sites[problem.consumers]]).sum()
    )


def _timed(method: Placer, problem: PlacementProblem) -> tuple[Placement, float]:
    """The best of three; what can be known ahead of a sample is not counted."""
    _ = problem.network.mean_square
    took = []
    for _ in range(3):
        fresh = replace(problem)
        begun = time.perf_counter()
        found = method.place(fresh)
        took.append(time.perf_counter() - begun)
        if took[-1] > 1:
            break
    return found, min(took)


def _follow(
    tally: Tally, method: Placer, problem: PlacementProblem, first: Placement, window: Array
) -> None:
    """Operators are placed anew at every sample, from the last ones, and judged by the next."""
    penalty = 0.0 if method.name == "vote" else MOVE_PENALTY
    now, moves, moving, staying = first, 0, 0.0, 0.0
    for step in range(STEPS):
        sample = window[SAMPLES + step]
        moving += _cost(problem, now, sample)
        staying += _cost(problem, first, sample)
        seen = window[step + 1 : SAMPLES + step + 1]
        there = [replace(one, at=now.sites[one.name]) for one in problem.vertices]
        again = replace(_at(problem, seen), vertices=there, move_penalty=penalty)
        now = method.place(again)
        moves += len(now.moves(again))
    tally.moves.append(moves / STEPS)
    tally.saved.append((moving, staying))


def _large(rng: np.random.Generator) -> list[Row]:
    sites, operators = LARGE
    latency = matrices.generated(rng, sites, 3)
    network = NetworkSamples(tuple(f"s{i}" for i in range(sites)), latency)
    rows = []
    for remerging in (False, True):
        problem = query(rng, network, operators, remerging=remerging)
        kind = "re-merging" if remerging else "tree"
        exact = placer("best").place(problem)
        for method in ("best", "search", "sbon", "vote"):
            found, seconds = _timed(placer(method), problem)
            tally = Tally(ratios=[found.cost / exact.cost], seconds=[seconds])
            rows.append(_row("generated", kind, sites, operators, method, tally))
    return rows


def _row(data: str, graph: str, sites: int, operators: int, method: str, tally: Tally) -> Row:
    moving, staying = np.sum(tally.saved, axis=0) if tally.saved else (0.0, 0.0)
    return {
        "data": data,
        "graph": graph,
        "method": method,
        "sites": sites,
        "operators": operators,
        "cost_ratio": _median(tally.ratios),
        "cost_ratio_p95": _high(tally.ratios),
        "following": float(np.mean(tally.following)) if tally.following else None,
        "regret_median": _median(tally.regrets),
        "regret_p95": _high(tally.regrets),
        "moves_per_sample": float(np.mean(tally.moves)) if tally.moves else None,
        "saved": float(1 - moving / staying) if staying else None,
        "saved_median": _median([1 - a / b for a, b in tally.saved if b]),
        "seconds": _median(tally.seconds),
    }


def _median(values: Sequence[float]) -> float | None:
    return float(np.median(values)) if values else None


def _high(values: Sequence[float]) -> float | None:
    return float(np.percentile(values, 95)) if values else None
