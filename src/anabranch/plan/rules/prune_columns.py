"""Only the columns that somebody needs travel over a link."""

from __future__ import annotations

from anabranch.plan.expressions import Expr
from anabranch.plan.operators import Aggregate, Item, Join, Node, Port, Projection, Union
from anabranch.plan.rules.base import Graph, expressions, with_ports
from anabranch.plan.spec import Column
from anabranch.plan.windows import UNTIL, RowPanes, Until


def prune_columns(graph: Graph) -> Graph:
    for node in reversed(graph.nodes):
        if not any(isinstance(one, Projection) for one in node.operators):
            continue  # gives on all it gets
        if isinstance(node.operators[0], Union):
            continue  # whose inputs must have the same columns
        if node != graph.nodes[-1] and isinstance(node.operators[0], Projection):
            continue  # is there to do just this
        for index in range(len(node.inputs)):
            graph = _prune(graph, node.name, index)
    return graph


def _prune(graph: Graph, name: str, index: int) -> Graph:
    node = graph.node(name)
    assert node
    port = node.inputs[index]
    if graph.is_table(port.stream) or _by_position(node):
        return graph
    columns = graph.columns(port.stream)
    needed = _needed(node, index)
    kept = tuple(column for column in columns if column.name in needed)
    if len(kept) == len(columns) or graph.site(port.stream) == node.site:
        return graph
    pruned = f"{port.stream}~{name}~{index}p"
    inner = graph.node(port.stream)
    if inner and not any(isinstance(one, Projection) for one in inner.operators):
        # A selection made for this input alone: let it drop the columns too.
        items = _items(kept, inner.inputs[0].alias)
        narrowed = inner.model_copy(
            update={"operators": (*inner.operators, items), "columns": kept}
        )
        return graph.with_new(inner.name, narrowed)
    if graph.site_for(pruned, port.stream) == node.site:
        return graph
    projected = Node(
        name=pruned,
        site=graph.site_for(pruned, port.stream),
        inputs=(Port(stream=port.stream, alias=port.stream, past=port.past),),
        operators=(_items(kept, port.stream),),
        columns=kept,
    )
    ports = list(node.inputs)
    ports[index] = Port(stream=projected.name, alias=port.alias)
    return graph.with_new(name, with_ports(node, ports, node.operators), projected)


def _by_position(node: Node) -> bool:
    """Whether windows count the stream's own positions and so must read that very stream."""
    return any(
        isinstance(one, Aggregate) and isinstance(one.panes, RowPanes) for one in node.operators
    )


def _needed(node: Node, index: int) -> frozenset[str]:
    alias = node.inputs[index].alias
    uses = [use for expr in expressions(node.operators) for use in expr.uses]
    needed = {use.column for use in uses if use.input == alias}
    first = node.operators[0]
    if isinstance(first, Join):
        needed |= {use.column for use in first.order if use.input == alias}
        if index < len(first.windows) and isinstance(first.windows[index], Until):
            needed.add(UNTIL)
    return frozenset(needed)


def _items(columns: tuple[Column, ...], alias: str) -> Projection:
    return Projection(
        items=tuple(
            Item(expr=Expr.of(alias, one.name), name=one.name, type=one.type) for one in columns
        )
    )
