"""What a site's Spark says of a script: the types of columns and expressions, and how it would
evaluate them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from anabranch.coordinator.base.sites import PREPARE_S, Sites
from anabranch.errors import AnabranchError
from anabranch.language.expressions.types import NO_FUNCTION, Typer
from anabranch.language.source import Script, Span
from anabranch.link.messages import Analyse, CheckTypes, Plans
from anabranch.link.reports import PlanReport
from anabranch.plan.expressions import TypeAnswer
from anabranch.plan.operators import Column
from anabranch.plan.tasks import TaskSpec


class Types(Typer, Protocol):
    """Something that can be asked for types while a script is checked."""

    def check_types(self, columns: tuple[Column, ...]) -> tuple[TypeAnswer, ...]:
        """For each column its type in Spark's spelling, or why it has none."""


class SparkTypes:
    """Asks any site that is up."""

    def __init__(self, sites: Sites) -> None:
        self._sites = sites

    def check_types(self, columns: tuple[Column, ...]) -> tuple[TypeAnswer, ...]:
        return self._sites.any().send(CheckTypes(columns), PREPARE_S)

    def __call__(
        self, columns: tuple[Column, ...], expressions: tuple[str, ...], *, aggregate: bool = False
    ) -> tuple[TypeAnswer, ...]:
        return self._sites.any().send(Analyse(columns, expressions, aggregate), PREPARE_S)


def declared_types(
    script: Script, types: Types, declared: Iterable[tuple[str, Span]]
) -> tuple[str, ...]:
    """Types in Spark's spelling. Raises ScriptError for a text that is no type."""
    written = list(declared)
    columns = tuple(Column(name=f"c{i}", type=type_) for i, (type_, _) in enumerate(written))
    types_ = []
    for (type_, span), answer in zip(written, types.check_types(columns), strict=True):
        if answer.type is None:
            raise script.error(
                span,
                f"{type_} cannot be the type of a column: {answer.error}",
                "Use a Spark SQL type such as DOUBLE, BIGINT, STRING or TIMESTAMP.",
            )
        types_.append(answer.type)
    return tuple(types_)


def is_function(types: Types, name: str) -> bool:
    """Whether Spark knows a function of this name."""
    (answer,) = types((), (f"`{name}`()",))
    return not answer.error.startswith(NO_FUNCTION)


PlansOf = Callable[[TaskSpec], Sequence[PlanReport]]


def explained(plans_of: PlansOf, tasks: Sequence[TaskSpec]) -> str:
    """A line that says whose plans are kept, what is a Spark job per instance, and why. Empty if
    Spark has nothing to evaluate, or nobody knows.
    """
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
    """Asks the site of a task to make its plans."""

    def plans_of(task: TaskSpec) -> Sequence[PlanReport]:
        if task.site not in sites.alive():
            return ()
        try:
            return sites.peer(task.site).send(Plans(task), PREPARE_S)
        except AnabranchError:
            return ()

    return plans_of


def reported(sites: Sites) -> PlansOf:
    """Takes the plans from the last heartbeat of the task's site: nothing is asked or made."""

    def plans_of(task: TaskSpec) -> Sequence[PlanReport]:
        record = sites.record(task.site)
        reports = (one for one in (record.tasks if record else ()) if one.name == task.name)
        return next((one.plans for one in reports), ())

    return plans_of
