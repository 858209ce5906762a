"""Selections move to the site of the stream that they filter."""

from __future__ import annotations

from anabranch.plan.operators import (
    Aggregate,
    Condition,
    Join,
    Node,
    Port,
    Projection,
    Selection,
    Union,
)
from anabranch.plan.rules.base import Graph, renamed, with_ports
from anabranch.plan.windows import Range


def push_selections(graph: Graph) -> Graph:
    for node in graph.nodes:
        if node.operators and isinstance(node.operators[0], Join):
            graph = _below_join(graph, node, node.operators[0])
        elif node.operators and isinstance(node.operators[0], Union):
            continue
        elif graph.site_for(_name(node), node.inputs[0].stream) != node.site or _aggregates(node):
            graph = _to_source(graph, node)
    return graph


def _below_join(graph: Graph, node: Node, join: Join) -> Graph:
    """A condition on one input is evaluated before the join where that changes nothing: if the
    window is one of time, since the last n ROWS are not the last n that pass, and if the condition
    cannot fail. A master's tuples that do not pass are still instants: they come as a stream
    without columns.
    """
    ports, before = list(node.inputs), []
    kept, masters = list(join.conditions), list(join.masters)
    for index, window in enumerate(join.windows):
        port = ports[index]
        mine = [one for one in kept if one.safe and one.expr.inputs == {port.alias}]
        if not mine or not isinstance(window, Range) or graph.is_table(port.stream):
            continue
        name = f"{port.stream}~{port.alias}~s"
        if graph.site_for(name, port.stream) == node.site:
            continue  # no link to spare; the join asks it first where that saves work
        kept = [one for one in kept if one not in mine]
        selected = _selected(graph, name, port, mine)
        ports[index] = Port(stream=selected.name, alias=port.alias)
        before.append(selected)
        if index in masters:
            instants = instants_of(graph, port)
            before.append(instants)
            masters[masters.index(index)] = len(ports)
            ports.append(Port(stream=instants.name, alias=f"{port.alias} instants"))
    if not before:
        return graph
    changed = join.model_copy(update={"conditions": tuple(kept), "masters": tuple(masters)})
    operators = (changed, *node.operators[1:])
    return graph.with_new(node.name, with_ports(node, ports, operators), *before)


def _selected(graph: Graph, name: str, port: Port, conditions: list[Condition]) -> Node:
    operators = tuple(Selection(condition=one) for one in conditions)
    return Node(
        name=name,
        site=graph.site_for(name, port.stream),
        inputs=(Port(stream=port.stream, alias=port.stream, past=port.past),),
        operators=renamed(operators, lambda use: use.model_copy(update={"input": port.stream})),
        columns=graph.columns(port.stream),
    )


def instants_of(graph: Graph, port: Port) -> Node:
    """The tuples of a stream as evaluation instants: without columns."""
    name = f"{port.stream}~{port.alias}~i"
    return Node(
        name=name,
        site=graph.site_for(name, port.stream),
        inputs=(Port(stream=port.stream, alias=port.stream, past=port.past),),
        operators=(Projection(items=()),),
        columns=(),
    )


def _aggregates(node: Node) -> bool:
    """Whether the node aggregates: a selection before an aggregate belongs to another node in any
    case.
    """
    return any(isinstance(one, Aggregate) for one in node.operators)


def _name(node: Node) -> str:
    """The name of the node that takes over the leading selections."""
    return f"{node.inputs[0].stream}~s"


def _to_source(graph: Graph, node: Node) -> Graph:
    """Moves the leading selections of a query over one stream to that stream's site."""
    count = 0
    while count < len(node.operators) and isinstance(node.operators[count], Selection):
        count += 1
    if not count:
        return graph
    port = node.inputs[0]
    conditions = [one.condition for one in node.operators[:count] if isinstance(one, Selection)]
    selected = _selected(graph, _name(node), port, conditions)
    ports = [Port(stream=selected.name, alias=port.alias)]
    changed = with_ports(node, ports, node.operators[count:])
    return graph.with_new(node.name, changed, selected)
