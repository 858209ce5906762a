"""Tasks: what one site runs as one unit, as data that is sent to it."""

from __future__ import annotations

from collections.abc import Callable

from anabranch.plan.catalog import Once, PocketDef, QueryDef, Relation
from anabranch.plan.keep import Keep, Past
from anabranch.plan.operators import Node, Operator, Port
from anabranch.plan.service_levels import Urgency
from anabranch.plan.spec import Call, Column, Program, Spec

Lookup = Callable[[str], Relation]


class TaskInput(Spec):
    """One input of a task: `stream` as produced at `site`, called `alias` in expressions."""

    stream: str
    site: str
    alias: str
    columns: tuple[Column, ...]
    table: bool = False
    """Its history is needed whole, whoever comes late: it is read from its beginning."""
    past: Past | None = None
    """From when on it is read when the task is new, if not from now."""


class TaskSpec(Spec):
    """Turns new tuples of `inputs` into tuples of the stream `output`, or hands them to `sink`.

    A task has an output or a sink, never both: a sink reads the query's stream like any consumer.
    """

    name: str
    query: str
    site: str
    inputs: tuple[TaskInput, ...]
    operators: tuple[Operator, ...] = ()
    columns: tuple[Column, ...]
    output: str | None = None
    sink: Call | None = None
    pocket: Program | None = None
    urgency: Urgency | None = None
    deadline_us: int | None = None
    """The query's deadline, of the task that its results leave last."""
    run: str = ""
    """Which creation of the query this is; sinks tell by it what is theirs."""
    born: int = 0
    """The number of the creation that it is of."""
    once: Once | None = None
    """What results are known by that others may have estimated."""
    keep: Keep | None = None
    """What is kept of its output for those who come later."""
    recovery_us: int | None = None
    """The RECOVERY that its query asks for."""
    base: str = ""

    def consumer(self, index: int) -> str:
        """The name by which the producer of an input knows us: a self-join is two consumers of
        it.
        """
        stream = self.inputs[index].stream
        earlier = sum(one.stream == stream for one in self.inputs[:index])
        return f"{self.name}#{earlier + 1}" if earlier else self.name


def sink_task(query: str) -> str:
    """The name of the task that hands a query's results to its sink."""
    return f"{query}/sink"


def tasks_of(query: QueryDef, lookup: Lookup) -> tuple[TaskSpec, ...]:
    """The tasks that run `query`, each after those it reads. `lookup` knows its FROM."""
    nodes = {node.name: node for node in query.nodes}
    tasks = tuple(_node_task(query, node, nodes, lookup) for node in query.nodes)
    whole = tasks if query.sink is None else (*tasks, _sink_task(query))
    if query.standby and (recovery_us := query.standby.recovery_us):
        whole = tuple(one.model_copy(update={"recovery_us": recovery_us}) for one in whole)
    return _urgent(query, whole) if query.deadline or query.urgencies else whole


def _urgent(query: QueryDef, tasks: tuple[TaskSpec, ...]) -> tuple[TaskSpec, ...]:
    """The tasks with their sub-deadlines, and the last with the deadline of the results."""
    deadline_us = query.deadline.us if query.deadline else None
    last = tasks[-1].model_copy(update={"deadline_us": deadline_us})
    return tuple(
        one.model_copy(update={"urgency": query.urgencies.get(one.name)})
        for one in (*tasks[:-1], last)
    )


def pocket_task(pocket: PocketDef, lookup: Lookup) -> TaskSpec:
    """The task that runs a pocket, at the site of its output stream."""
    return TaskSpec(
        name=pocket.name,
        query=pocket.name,
        site=pocket.site,
        inputs=(_input(Port(stream=pocket.input, alias=pocket.input), None, lookup),),
        columns=lookup(pocket.output).columns,
        output=pocket.output,
        pocket=pocket.program,
        born=pocket.born,
    )


def _node_task(query: QueryDef, node: Node, nodes: dict[str, Node], lookup: Lookup) -> TaskSpec:
    return TaskSpec(
        name=node.name,
        query=query.name,
        site=node.site,
        inputs=tuple(_input(port, nodes.get(port.stream), lookup) for port in node.inputs),
        operators=node.operators,
        columns=node.columns,
        output=node.name,
        keep=query.keep if node.name == query.name else None,
        born=query.inherited.get(node.name, query.born),
        base=query.base,
    )


def _input(port: Port, node: Node | None, lookup: Lookup) -> TaskInput:
    if node:
        return TaskInput(stream=node.name, site=node.site, alias=port.alias, columns=node.columns)
    source = lookup(port.stream)
    return TaskInput(
        stream=source.name,
        site=source.site,
        alias=port.alias,
        columns=source.wire_columns,
        table=source.kind == "table",
        past=port.past,
    )


def _sink_task(query: QueryDef) -> TaskSpec:
    source = TaskInput(stream=query.name, site=query.site, alias=query.name, columns=query.columns)
    return TaskSpec(
        name=sink_task(query.name),
        query=query.name,
        site=query.sink_site or query.site,
        inputs=(source,),
        columns=query.columns,
        sink=query.sink,
        run=query.run,
        born=query.born,
        once=query.once,
        base=query.base,
    )
