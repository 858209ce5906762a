"""The deadline experiment: the paper's hand example and figure 7, and how the program scales."""

from __future__ import annotations

import time
from typing import Any

from anabranch.deadline.solve import solve
from anabranch.deadline.tasks import tasks_of
from anabranch.deadline.urgency import EdfQueue
from bench.deadline.busy import busy
from bench.deadline.check import broken
from bench.deadline.waves import figure_7 as figure_7_real
from bench.systems.system import Progress
from simulation.collision import COMBINATIONS, Noise, figure_7, hand_example
from simulation.planned import planned_misses
from simulation.random_plans import random_problem
from simulation.use_case import OUTPUTS

V2V = (5, 10, 15, 20, 25, 30)
RUNS = 50
SIZES = ((2, 20), (4, 50), (8, 100), (8, 200), (16, 200), (32, 200))
QUICK_SIZES = ((2, 20), (4, 50), (8, 200))
TIGHT = (0.5, 1.5, 2.5)
"""Shares of the sites' time asked for: loose, moderate, and close to what cannot be had."""
LIMIT_S = 15.0
WAITING = 10_000
REAL_V2V, REAL_RUNS = (5, 15, 25), 20
QUICK_S, BUSY_S = 20.0, 60.0


def simulated(progress: Progress, quick: bool) -> dict[str, Any]:
    """With the paper's own times: `hand` in ms, `figure7` as shares of late results."""
    progress("The hand example …")
    hand = {}
    for name in COMBINATIONS:
        worst = {output: us / 1000 for output, us in hand_example(name).items()}
        met = all(worst[output] <= OUTPUTS[output] * 1000 for output in worst)
        hand[name] = worst | {"met": met}
    figure: dict[str, dict[str, float]] = {name: {} for name in COMBINATIONS}
    for v2v in (15,) if quick else V2V:
        for name in COMBINATIONS:
            progress(f"Figure 7: {v2v} V2V tuples, {name} …")
            figure[name][str(v2v)] = figure_7(name, v2v, RUNS, Noise())
    return {"hand": hand, "figure7": figure}


def programs(progress: Progress, quick: bool) -> list[dict[str, Any]]:
    """Random plans: how long the program takes, how good its plan is, and whether it holds."""
    rows = []
    for sites, operators in QUICK_SIZES if quick else SIZES:
        for tight in TIGHT:
            progress(f"{sites} sites × {operators} operators, tightness {tight} …")
            rows.append(_program(sites, operators, tight))
    return rows


def _program(sites: int, operators: int, tight: float) -> dict[str, Any]:
    problem = random_problem(1, sites, operators, tight)
    started = time.perf_counter()
    plan = solve(problem, limit_s=LIMIT_S)
    row = {
        "sites": sites,
        "operators": operators,
        "tight": tight,
        "seconds": time.perf_counter() - started,
        "gap": None,
        "objective": None,
        "misses": None,
    }
    if plan is None:
        return row
    tasks = tasks_of(problem, plan)
    if wrong := broken(problem, plan, tasks):
        raise AssertionError(f"the plan does not hold: {wrong[0]}")
    return row | {
        "gap": plan.gap,
        "objective": plan.objective,
        "misses": planned_misses(problem, plan),
    }


def queueing() -> float:
    """Seconds that the queue takes of an instance, push and pop, with 10,000 waiting."""
    queue: EdfQueue[int] = EdfQueue()
    for item in range(WAITING):
        queue.push(item, arrival=item, deadline=item * 7919 % WAITING)
    started = time.perf_counter()
    for turn in range(WAITING):
        item = queue.pop()
        queue.push(item, arrival=WAITING + turn, deadline=WAITING + turn * 7919 % WAITING)
    return (time.perf_counter() - started) / WAITING


def run(
    progress: Progress, quick: bool, real: bool = True, scale: float | None = None
) -> dict[str, Any]:
    """`real`: on real sites as well, with the paper's times × `scale`; without it, the smallest
    that works here."""
    result = simulated(progress, quick) | {"queue_s": queueing()}
    result["mip"] = programs(progress, quick)
    if real:
        v2v, runs = ((15,), 10) if quick else (REAL_V2V, REAL_RUNS)
        result |= figure_7_real(progress, scale, v2v, runs)
        result |= busy(progress, QUICK_S if quick else BUSY_S)
    return result
