"""The paper's four combinations of placement and scheduling, on its use case, in virtual time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from random import Random

from anabranch.deadline.problem import DeadlineProblem
from anabranch.deadline.solve import solve
from anabranch.deadline.tasks import LocalTask, extract, tasks_of
from simulation.schedule import Policy, Result, Schedule, ScheduledTask, Step, Tuple
from simulation.use_case import CENTRE, OUTPUTS, SENSOR, collision, existing_placement

MS = 1000
COMBINATIONS = (
    "DeadlineAlloc.EDF",
    "ExistingAlloc.EDF",
    "DeadlineAlloc.FIFO",
    "ExistingAlloc.FIFO",
)
RESULTS = {"O1": "control", "O21": "warning", "O5": "information"}
HALVED = {"O3"}
OPTIMISED_FOR = 15
"""V2V tuples that the paper's program was solved for."""


@dataclass(frozen=True)
class Noise:
    """What a 700 MHz machine adds: execution times vary by `spread` (standard deviation, in parts
    of the cost), and `pauses` times a second everything stands still for `pause` µs. The sensor's
    tuples come `gap` µs after V2V's. The paper says none of these; they are fitted to its figures
    at 15 V2V tuples."""

    spread: float = 0.2
    pauses: float = 1.0
    pause: int = 20 * MS
    gap: int = 8400


@cache
def _planned(
    v2v: int,
) -> tuple[DeadlineProblem, dict[str, str], dict[str, str], tuple[LocalTask, ...]]:
    """The problem, both placements, and the tasks with deadline placement."""
    problem = collision(v2v)
    plan, existing = solve(problem), existing_placement(problem)
    assert plan is not None
    assert existing is not None
    return problem, plan.placement, existing, tasks_of(problem, plan)


def tasks(combination: str, v2v: int) -> tuple[ScheduledTask, ...]:
    """EDF schedules tasks; existing placement has no sub-deadlines of its own, so what a site has
    to do for an output keeps the ones that deadline placement gave that site. FIFO schedules
    operators, as stream systems without deadlines do."""
    problem, deadline, existing, planned = _planned(v2v)
    alloc, policy = combination.split(".")
    placement = deadline if alloc == "DeadlineAlloc" else existing
    if policy == "FIFO":
        return tuple(
            _scheduled(problem, LocalTask((one.name,), placement[one.name], one.cost, 0.0))
            for one in problem.topological
        )
    if alloc == "DeadlineAlloc":
        return tuple(_scheduled(problem, one) for one in planned)
    home = {name: one for one in planned for name in one.operators}
    local = extract(problem, placement, {one.name: 0.0 for one in problem.operators})
    return tuple(_scheduled(problem, _borrowed(one, home)) for one in local)


def _borrowed(task: LocalTask, home: dict[str, LocalTask]) -> LocalTask:
    lender = next(home[name] for name in task.operators if home[name].site == task.site)
    return LocalTask(task.operators, task.site, task.cost, lender.deadline)


def _scheduled(problem: DeadlineProblem, task: LocalTask) -> ScheduledTask:
    steps = tuple(Step(name, MS, 2 if name in HALVED else 1) for name in task.operators)
    inputs = problem.by_name[task.operators[0]].inputs
    return ScheduledTask(task.name, task.site, steps, round(task.deadline * 1e6), inputs)


def hand_example(combination: str) -> dict[str, int]:
    """Figures 3 and 4: the latest result of p1 and p2, in µs since they were born. Batches are
    handed over whole."""
    schedule = Schedule(tasks(combination, 20), Policy(combination.split(".")[1]))
    for source, count, born in (("sensor", 10, 0), ("v2v", 20, -100), ("centre", 100, -200)):
        schedule.arrive(source, [Tuple(born * MS)] * count, born * MS)
    worst: dict[str, int] = {}
    for result in schedule.run(0):
        if output := RESULTS.get(result.operator):
            worst[output] = max(worst.get(output, 0), result.done - result.born)
    return worst


def missed(results: list[Result]) -> tuple[int, int]:
    """Results of outputs 1 and 2, and how many of them came too late."""
    counted = [one for one in results if RESULTS.get(one.operator) in ("control", "warning")]
    late = [one for one in counted if one.done - one.born > OUTPUTS[RESULTS[one.operator]] * 1e6]
    return len(counted), len(late)


def figure_7(combination: str, v2v: int, runs: int, noise: Noise) -> float:
    """The share of results of outputs 1 and 2 that are late, over `runs`. Tuples are scheduled one
    by one."""
    whole = late = 0
    for run in range(runs):
        random = Random(f"{combination} {v2v} {run}")
        schedule = Schedule(
            tasks(combination, OPTIMISED_FOR),
            Policy(combination.split(".")[1]),
            lambda site, cost, random=random: _taken(random, noise, cost),  # type: ignore[misc]
            phase=run,
        )
        for _ in range(CENTRE):
            schedule.arrive("centre", [Tuple(-1)], -1)
        for _ in range(v2v):
            schedule.arrive("v2v", [Tuple(0)], 0)
        for _ in range(SENSOR):
            schedule.arrive("sensor", [Tuple(noise.gap)], noise.gap)
        counted, wrong = missed(schedule.run(-1))
        whole, late = whole + counted, late + wrong
    return late / whole


def _taken(random: Random, noise: Noise, cost: int) -> int:
    taken = round(cost * max(0.1, random.gauss(1.0, noise.spread)))
    return taken + (noise.pause if random.random() < noise.pauses * cost / 1e6 else 0)
