"""Inputs that come from one other site are joined there, and only matching tuples travel.

A partial join produces, as tuples of a stream, the combinations of some of the inputs with the time
during which all of their members are in their windows. It needs no master: a combination begins
with its newest member. The rest of the join reads it like any input.
"""

from __future__ import annotations

from collections import defaultdict

from anabranch.plan.expressions import Expr, Use, flat_name
from anabranch.plan.operators import Condition, Item, Join, Node, Port, Projection
from anabranch.plan.rules.base import Graph, expressions, renamed, with_ports
from anabranch.plan.rules.push_selections import instants_of
from anabranch.plan.spec import Column
from anabranch.plan.windows import UNTIL, Range, Until


def join_near_sources(graph: Graph) -> Graph:
    for node in graph.nodes:
        first = node.operators[0] if node.operators else None
        if isinstance(first, Join) and not first.partial:
            for group in _groups(graph, node, first):
                graph = _joined(graph, node.name, group)
    return graph


def _groups(graph: Graph, node: Node, join: Join) -> list[list[str]]:
    """Groups of two or more aliases whose inputs come from one site and are connected by
    conditions, if their partial join can be elsewhere than the rest.
    """
    by_site: dict[str, list[str]] = defaultdict(list)
    for port, window in zip(node.inputs, join.windows, strict=False):
        if isinstance(window, Range) and not graph.is_table(port.stream):
            by_site[graph.origin(port.stream)].append(port.alias)
    connected = [_connected(aliases, join.conditions) for aliases in by_site.values()]
    groups_ = [group for groups in connected for group in groups if len(group) > 1]
    return [group for group in groups_ if _partial_site(graph, node, group) != node.site]


def _partial_site(graph: Graph, node: Node, group: list[str]) -> str:
    ports = [port for port in node.inputs if port.alias in group]
    return graph.site_for(_partial_name(ports), ports[0].stream)


def _partial_name(ports: list[Port]) -> str:
    return f"{name_of(ports)}~j"


def _connected(aliases: list[str], conditions: tuple[Condition, ...]) -> list[list[str]]:
    groups = [{alias} for alias in aliases]
    for condition in conditions:
        inputs = condition.expr.inputs
        if condition.safe and len(inputs) > 1 and inputs <= set(aliases):
            together = [group for group in groups if group & inputs]
            rest = [group for group in groups if not group & inputs]
            groups = [*rest, set().union(*together)]
    return [[alias for alias in aliases if alias in group] for group in groups]


def _joined(graph: Graph, name: str, group: list[str]) -> Graph:
    node = graph.node(name)
    assert node
    join = node.operators[0]
    assert isinstance(join, Join)
    inner = _partial(graph, node, join, group)
    moved = {
        flat_name(Use(input=item.expr.uses[0].input, column=item.expr.uses[0].column))
        for operator in inner.operators[1:]
        if isinstance(operator, Projection)
        for item in operator.items
    }
    alias = "+".join(group)
    places = {use: f"_order.{n}" for n, use in enumerate(_order(join, group))}

    def change(use: Use) -> Use:
        if use in places:
            return Use(input=alias, column=places[use])
        if use.input in group and flat_name(use) in moved:
            return Use(input=alias, column=flat_name(use))
        return use

    ports, windows, masters, instants = _outer(graph, node, join, group, inner, alias)
    inside = set(group)
    conditions = tuple(one for one in join.conditions if not _is_inner(one, inside))
    outer = join.model_copy(
        update={"windows": windows, "masters": masters, "conditions": conditions}
    )
    operators = renamed((outer, *node.operators[1:]), change)
    return graph.with_new(name, with_ports(node, ports, operators), inner, *instants)


def _is_inner(condition: Condition, inside: set[str]) -> bool:
    return condition.safe and bool(condition.expr.inputs) and condition.expr.inputs <= inside


def _order(join: Join, group: list[str]) -> tuple[Use, ...]:
    return tuple(use for use in join.order if use.input in group)


def _partial(graph: Graph, node: Node, join: Join, group: list[str]) -> Node:
    ports = [port for port in node.inputs if port.alias in group]
    windows = [
        window
        for port, window in zip(node.inputs, join.windows, strict=False)
        if port.alias in group
    ]
    inside = set(group)
    inner = Join(
        windows=tuple(windows),
        masters=tuple(range(len(ports))),
        conditions=tuple(one for one in join.conditions if _is_inner(one, inside)),
        order=_order(join, group),
        partial=True,
    )
    outer = [one for one in join.conditions if not _is_inner(one, inside)]
    rest = (join.model_copy(update={"conditions": tuple(outer)}), *node.operators[1:])
    used = {use for expr in expressions(rest) for use in expr.uses if use.input in inside}
    items = tuple(_item(graph, ports, use) for use in sorted(used, key=flat_name))
    extra = [UNTIL, *(f"_order.{n}" for n in range(len(inner.order)))]
    name = _partial_name(ports)
    return Node(
        name=name,
        site=graph.site_for(name, ports[0].stream),
        inputs=tuple(ports),
        operators=(inner, Projection(items=items)),
        columns=(
            *(Column(name=item.name, type=item.type) for item in items),
            *(Column(name=name, type="bigint") for name in extra),
        ),
    )


def name_of(ports: list[Port]) -> str:
    return "+".join(port.stream.partition("~")[0] for port in ports)


def _item(graph: Graph, ports: list[Port], use: Use) -> Item:
    stream = next(port.stream for port in ports if port.alias == use.input)
    types = {column.name: column.type for column in graph.columns(stream)} | {"_ts": "bigint"}
    expr = Expr.of(use.input, use.column)
    return Item(expr=expr, name=flat_name(use), type=types[use.column])


def _outer(
    graph: Graph, node: Node, join: Join, group: list[str], inner: Node, alias: str
) -> tuple[list[Port], tuple[Range | Until, ...], tuple[int, ...], list[Node]]:
    """The outer join's inputs: the partial join at the place of its first member, the others, then
    those that are masters only.
    """
    ports: list[Port] = []
    windows: list[Range | Until] = []
    index_of: dict[int, int] = {}
    for index, port in enumerate(node.inputs[: len(join.windows)]):
        if port.alias == group[0]:
            ports.append(Port(stream=inner.name, alias=alias))
            windows.append(Until())
        elif port.alias not in group:
            index_of[index] = len(ports)
            ports.append(port)
            windows.append(join.windows[index])  # type: ignore[arg-type]
    instants: list[Node] = []
    for index, port in enumerate(node.inputs):
        if index in join.masters and index not in index_of:
            index_of[index] = len(ports)
            if index < len(join.windows):
                instants.append(instants_of(graph, port))
                port = Port(stream=instants[-1].name, alias=f"{port.alias} instants")
            ports.append(port)
    masters = tuple(index_of[index] for index in join.masters)
    return ports, tuple(windows), masters, instants
