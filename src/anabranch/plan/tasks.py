"""Tasks: what one site runs as one unit, as data that is sent to it."""

from __future__ import annotations

from anabranch.plan.catalog import Definition, QueryDef
from anabranch.plan.operators import Call, Column, Operator, Spec


class Input(Spec):
    """One input of a task: `stream` as produced at `site`, called `alias` in expressions."""

    stream: str
    site: str
    alias: str
    columns: tuple[Column, ...]


class TaskSpec(Spec):
    """Turns new tuples of `inputs` into tuples of the stream `output`, or hands them to `sink`.

    A task has an output or a sink, never both: a sink reads the query's stream like any consumer.
    """

    name: str
    query: str
    site: str
    inputs: tuple[Input, ...]
    operators: tuple[Operator, ...] = ()
    columns: tuple[Column, ...]
    output: str | None = None
    sink: Call | None = None
    base: str = ""


def sink_task(query: str) -> str:
    """The name of the task that hands a query's results to its sink."""
    return f"{query}/sink"


def tasks_of(query: QueryDef, source: Definition) -> tuple[TaskSpec, ...]:
    """The tasks that run `query` over `source`, the definition of its input."""
    main = TaskSpec(
        name=query.name,
        query=query.name,
        site=query.site,
        inputs=(
            Input(stream=source.name, site=source.site, alias=query.alias, columns=source.columns),
        ),
        operators=query.operators,
        columns=query.columns,
        output=query.name,
        base=query.base,
    )
    if query.sink is None:
        return (main,)
    sink = TaskSpec(
        name=sink_task(query.name),
        query=query.name,
        site=query.site,
        inputs=(
            Input(stream=query.name, site=query.site, alias=query.name, columns=query.columns),
        ),
        columns=query.columns,
        sink=query.sink,
        base=query.base,
    )
    return (main, sink)
