"""Task extraction (5.3 of the paper): which operators of a site are scheduled as one."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.deadline.problem import DeadlinePlan, DeadlineProblem

SLACK = 1e-6
"""By how much sums of floating point numbers may be off, in parts of them."""


@dataclass(frozen=True)
class LocalTask:
    """Operators of one site that form a path, upstream first. The last one gives the task its
    name.
    """

    operators: tuple[str, ...]
    site: str
    cost: float
    deadline: float

    @property
    def name(self) -> str:
        return self.operators[-1]


def extract(
    problem: DeadlineProblem,
    placement: dict[str, str],
    sub_deadlines: dict[str, float],
    ends: frozenset[str] = frozenset(),
) -> tuple[LocalTask, ...]:
    """At first each operator is a task of its own. An operator with a single reader is merged with
    it if the reader reads nothing else and is at the same site; with several readers, it is merged
    with the one on the way to the smallest end-to-end deadline; none of `ends` is merged with a
    reader. A task's sub-deadline is the sum of its operators'.
    """
    urgency = _urgency(problem)
    paths: dict[str, list[str]] = {}
    for operator in problem.topological:
        path = [operator.name]
        if len(operator.inputs) == 1 and operator.inputs[0] in paths:
            before = operator.inputs[0]
            together = placement[before] == placement[operator.name]
            follows = before not in ends and _next(problem, before, urgency) == operator.name
            if together and follows:
                path = [*paths.pop(before), operator.name]
        paths[operator.name] = path
    return tuple(_task(problem, placement, sub_deadlines, path) for path in paths.values())


def tasks_of(problem: DeadlineProblem, plan: DeadlinePlan) -> tuple[LocalTask, ...]:
    """The tasks, extracted so that the plan's deadlines hold. A reader of an output in the middle
    of a task may have to wait for the task's end; where that would be too late the task ends there.
    """
    sub_deadlines = {name: plan.sub_deadline(name) for _, name in plan.deadlines}
    ends: frozenset[str] = frozenset()
    while True:
        tasks = extract(problem, plan.placement, sub_deadlines, ends)
        inner = frozenset(
            name
            for output, waited in longest(problem, tasks).items()
            if waited > plan.promised[output] * (1 + SLACK)
            for one in problem.upstream[output]
            for task in tasks
            if one.name in task.operators
            for name in task.operators[:-1]
            if len(problem.readers[name]) > 1 or any(o.operator == name for o in problem.outputs)
        )
        if inner <= ends:
            return tasks
        ends |= inner


def longest(problem: DeadlineProblem, tasks: tuple[LocalTask, ...]) -> dict[str, float]:
    """Output → the time that the longest way to it may take."""
    home = {name: task for task in tasks for name in task.operators}
    end = ends(problem, tasks)
    return {one.name: end[home[one.operator].name] for one in problem.outputs}


def ends(problem: DeadlineProblem, tasks: tuple[LocalTask, ...]) -> dict[str, float]:
    """Task → the sum of the sub-deadlines on the longest way up to its end, and of the times
    between sites.
    """
    home = {name: task for task in tasks for name in task.operators}
    end: dict[str, float] = {}

    def ended(task: LocalTask) -> float:
        if task.name not in end:
            inputs = problem.by_name[task.operators[0]].inputs
            before = [arrives(name, task.site) for name in inputs]
            end[task.name] = task.deadline + max(before, default=0.0)
        return end[task.name]

    def arrives(name: str, site: str) -> float:
        if name in problem.source_sites:
            return problem.delay(problem.source_sites[name], site)
        return ended(home[name]) + problem.delay(home[name].site, site)

    return {task.name: ended(task) for task in tasks}


def _urgency(problem: DeadlineProblem) -> dict[str, float]:
    """Operator → the smallest end-to-end deadline that depends on it."""
    urgency: dict[str, float] = {}
    for output in problem.outputs:
        for operator in problem.upstream[output.name]:
            urgency[operator.name] = min(
                output.deadline, urgency.get(operator.name, output.deadline)
            )
    return urgency


def _next(problem: DeadlineProblem, name: str, urgency: dict[str, float]) -> str | None:
    """The reader with which an operator's path goes on; None if an output of its own, due earlier
    or at the same time, ends the path.
    """
    readers = problem.readers[name]
    own = [one.deadline for one in problem.outputs if one.operator == name]
    if not readers:
        return None
    best = min(readers, key=lambda one: (urgency.get(one, float("inf")), readers.index(one)))
    if own and min(own) <= urgency.get(best, float("inf")):
        return None
    return best


def _task(
    problem: DeadlineProblem,
    placement: dict[str, str],
    sub_deadlines: dict[str, float],
    path: list[str],
) -> LocalTask:
    cost = sum(problem.by_name[name].cost for name in path)
    deadline = sum(sub_deadlines.get(name, float("inf")) for name in path)
    return LocalTask(tuple(path), placement[path[0]], cost, deadline)
