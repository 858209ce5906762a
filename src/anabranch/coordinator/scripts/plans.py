"""How Spark would evaluate a query's expressions, as its sites say."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anabranch.coordinator.base.sites import PREPARE_S, Sites
from anabranch.errors import AnabranchError
from anabranch.link.messages import Plans
from anabranch.link.reports import PlanReport
from anabranch.plan.tasks import TaskSpec

PlansOf = Callable[[TaskSpec], Sequence[PlanReport]]


def explained(plans_of: PlansOf, tasks: Sequence[TaskSpec]) -> str:
    """A line: whose plans are kept, and what is a Spark job per instance, and why. Empty if Spark
    has nothing to evaluate, or nobody knows."""
    kept: list[str] = []
    jobs: list[str] = []
    for task in tasks:
        if task.operators:
            plans = plans_of(task)
            reasons = [one.why for one in plans if one.plan == "job"]
            if reasons:
                jobs.append(f"{task.name or '(query)'} ({reasons[0]})")
            elif plans:
                kept.append(task.name or "(query)")
    said = [f"plans are kept of {', '.join(kept)}"] if kept else []
    said += [f"a job per instance evaluates {', '.join(jobs)}"] if jobs else []
    return f"Spark: {'; '.join(said)}." if said else ""


def asked(sites: Sites) -> PlansOf:
    """By having the site of a task make its plans."""

    def plans_of(task: TaskSpec) -> Sequence[PlanReport]:
        if task.site not in sites.alive():
            return ()
        try:
            return sites.peer(task.site).send(Plans(task), PREPARE_S)
        except AnabranchError:
            return ()

    return plans_of


def reported(sites: Sites) -> PlansOf:
    """By what the site of a task told with its last heartbeat: nothing is asked or made."""

    def plans_of(task: TaskSpec) -> Sequence[PlanReport]:
        record = sites.record(task.site)
        there = (one for one in (record.tasks if record else ()) if one.name == task.name)
        return next((one.plans for one in there), ())

    return plans_of
