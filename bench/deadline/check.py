"""Checks whether a plan holds, independently of how it was made."""

from __future__ import annotations

from anabranch.deadline.problem import DeadlinePlan, DeadlineProblem
from anabranch.deadline.tasks import SLACK, LocalTask, longest


def broken(problem: DeadlineProblem, plan: DeadlinePlan, tasks: tuple[LocalTask, ...]) -> list[str]:
    """What is wrong with the plan; empty if nothing is.

    EDF meets all sub-deadlines of a site, whenever its tasks begin, if in every span of time L the
    tasks whose sub-deadlines are at most L cost at most L together (the demand bound of one
    instance each).
    """
    wrong = [*_misplaced(problem, plan), *_late(problem, plan, tasks)]
    for site in problem.sites:
        busy = 0.0
        local = sorted((one for one in tasks if one.site == site), key=lambda one: one.deadline)
        for task in local:
            busy += task.cost
            if busy > task.deadline * (1 + SLACK):
                wrong.append(f"{site}: {task.name} may be done after {busy}, due {task.deadline}")
        load = sum(one.load for one in problem.operators if plan.placement[one.name] == site)
        if load > problem.sites[site] * (1 + SLACK):
            wrong.append(f"{site}: loaded {load:.2f} of {problem.sites[site]}")
    return wrong


def _misplaced(problem: DeadlineProblem, plan: DeadlinePlan) -> list[str]:
    return [
        f"{one.name} must not be at {plan.placement[one.name]}"
        for one in problem.operators
        if plan.placement[one.name] not in one.sites
    ]


def _late(problem: DeadlineProblem, plan: DeadlinePlan, tasks: tuple[LocalTask, ...]) -> list[str]:
    return [
        f"{output} may take {waited}, due {plan.promised[output]}"
        for output, waited in longest(problem, tasks).items()
        if waited > plan.promised[output] * (1 + SLACK)
    ]
