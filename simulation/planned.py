"""A plan as it would run, in virtual time, one wave of every source."""

from __future__ import annotations

from anabranch.deadline.problem import DeadlinePlan, DeadlineProblem
from anabranch.deadline.tasks import tasks_of
from simulation.schedule import Policy, Schedule, ScheduledTask, Step, Tuple


def planned_misses(
    problem: DeadlineProblem,
    plan: DeadlinePlan,
    offsets: list[int] | None = None,
    policy: Policy = Policy.EDF,
) -> float:
    """The share of results that are later than promised, if the sources' tuples come at `offsets`
    (in µs; else all at once)."""
    tasks = tuple(
        ScheduledTask(
            one.name,
            one.site,
            tuple(Step(name, round(problem.by_name[name].cost * 1e6)) for name in one.operators),
            round(one.deadline * 1e6),
            problem.by_name[one.operators[0]].inputs,
        )
        for one in tasks_of(problem, plan)
    )
    schedule = Schedule(tasks, policy)
    for source, offset in zip(problem.sources, offsets or [0] * len(problem.sources), strict=False):
        schedule.arrive(source.name, [Tuple(offset)], offset)
    due: dict[str, float] = {}
    for output in problem.outputs:
        promised = plan.promised[output.name]
        due[output.operator] = min(promised, due.get(output.operator, promised))
    results = [one for one in schedule.run(0) if one.operator in due]
    rounding = len(problem.operators)
    late = [one for one in results if one.done - one.born > due[one.operator] * 1e6 + rounding]
    return len(late) / max(1, len(results))
