"""A query's processing tree: from the sink down to the sources, one operator a branch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from anabranch.plan.catalog import QueryDef, Relation, StreamDef
from anabranch.plan.expressions import Expr, Use, shown
from anabranch.plan.graph import Node, Port
from anabranch.plan.operators import Aggregate, AggregateCall, Item, Join, Operator, Selection
from anabranch.plan.protection import Standby
from anabranch.plan.spec import Call
from anabranch.plan.windows import Range, RowPanes, Rows, TimePanes, Until, Window
from anabranch.units import show_duration

Lookup = Callable[[str], Relation]


@dataclass(frozen=True)
class Branch:
    """`text` says what is done at `site` with what `inputs` give. A link names two sites there."""

    text: str
    site: str
    inputs: tuple[Branch, ...] = ()
    notes: tuple[str, ...] = ()
    """What else there is to say of it."""


def tree(query: QueryDef, nodes: Sequence[Node], lookup: Lookup) -> Branch:
    """The tree of `query` when it is run as `nodes`, the last of which gives its output."""
    named = {node.name: node for node in nodes}
    title = query.name or "(query)"
    root = _noted(_node(nodes[-1], named, lookup, title), query.standby)
    if query.sink is None:
        return root
    site = query.sink_site or query.site
    if site != query.site:
        root = Branch(f"link {title}", f"{query.site} → {site}", (root,))
    return Branch(f"sink {show_call(query.sink)}", site, (root,))


def _noted(branch: Branch, standby: Standby | None) -> Branch:
    notes = (f"standby: {standby.explained()}",) if standby else ()
    return replace(branch, notes=notes)


def _node(node: Node, named: Mapping[str, Node], lookup: Lookup, title: str) -> Branch:
    inputs = tuple(_input(port, node, named, lookup) for port in node.inputs)
    words = _Words(node)
    branch: Branch | None = None
    for operator in node.operators:
        text = f"{words.operator(operator)}  [{title}]"
        branch = Branch(text, node.site, (branch,) if branch else inputs)
    return branch or Branch(title, node.site, inputs)


def _input(port: Port, node: Node, named: Mapping[str, Node], lookup: Lookup) -> Branch:
    if inner := named.get(port.stream):
        source, site = _node(inner, named, lookup, inner.name), inner.site
    else:
        found = lookup(port.stream)
        source, site = _relation(found, lookup), found.site
    if site == node.site:
        return source
    return Branch(f"link {port.stream}", f"{site} → {node.site}", (source,))


def _relation(found: Relation, lookup: Lookup) -> Branch:
    if isinstance(found, QueryDef):
        named = {node.name: node for node in found.nodes}
        return _noted(_node(found.nodes[-1], named, lookup, found.name), found.standby)
    if isinstance(found, StreamDef) and found.source is None:
        return Branch(f"stream {found.name}", found.site)
    assert found.source is not None
    return Branch(f"{found.kind} {found.name} from {show_call(found.source)}", found.site)


class _Words:
    """A node's operators as people would put them: columns go by their names alone where there is
    only one input, and results of aggregates by the call that gives them."""

    def __init__(self, node: Node) -> None:
        self._aliases = [port.alias for port in node.inputs]
        self._calls: dict[str, str] = {}
        for operator in node.operators:
            if isinstance(operator, Aggregate):
                self._calls = {call.name: self._call(call) for call in operator.calls}

    def operator(self, operator: Operator) -> str:
        if isinstance(operator, Selection):
            return f"selection {self._text(operator.condition.expr)}"
        if isinstance(operator, Join):
            return self._join(operator)
        if isinstance(operator, Aggregate):
            return self._aggregate(operator)
        items = ", ".join(self._item(item) for item in operator.items)
        return f"projection {items}" if items else "instants"

    def _text(self, expr: Expr) -> str:
        return expr.sql(self._name)

    def _name(self, use: Use) -> str:
        if not use.input and use.column in self._calls:
            return self._calls[use.column]
        single = len(self._aliases) == 1
        return shown(Use(input="", column=use.column) if single else use)

    def _item(self, item: Item) -> str:
        text = self._text(item.expr)
        use = item.expr.column
        return text if use and text.rpartition(".")[2] == item.name else f"{text} AS {item.name}"

    def _join(self, join: Join) -> str:
        kind = "partial join" if join.partial else "join" if join.conditions else "product"
        if len(join.windows) == 1:
            kind = "window"
        pairs = zip(self._aliases, join.windows, strict=False)
        text = f"{kind} {', '.join(alias + _window(window) for alias, window in pairs)}"
        if join.conditions:
            text += " on " + " AND ".join(self._text(one.expr) for one in join.conditions)
        return f"{text} at each {', '.join(self._aliases[index] for index in join.masters)}"

    def _aggregate(self, aggregate: Aggregate) -> str:
        calls = ", ".join(self._calls.values()) or "groups"
        text = f"aggregate {calls} over {_panes(aggregate.panes)}"
        keys = ", ".join(self._text(key.expr) for key in aggregate.keys)
        return f"{text} by {keys}" if keys else text

    def _call(self, call: AggregateCall) -> str:
        arguments = ", ".join(self._text(one) for one in call.arguments) or "*"
        return f"{call.function}({'DISTINCT ' if call.distinct else ''}{arguments})"


def _window(window: Window) -> str:
    if isinstance(window, Range):
        return f"[{show_duration(window.width_us)}]"
    if isinstance(window, Rows):
        return f"[{window.count} ROWS]"
    return " (as joined)" if isinstance(window, Until) else ""


def _panes(panes: TimePanes | RowPanes) -> str:
    if isinstance(panes, RowPanes):
        slide = f" SLIDE {panes.slide} ROWS" if panes.slide != panes.width else ""
        return f"[{panes.width} ROWS{slide}]"
    width, slide_us = show_duration(panes.width_us), panes.slide_us
    slide = f" SLIDE {show_duration(slide_us)}" if slide_us != panes.width_us else ""
    return f"[{width}{slide}]"


def show_call(call: Call) -> str:
    options = ", ".join(f"{key} = {_literal(value)}" for key, value in call.options.items())
    return f"{call.name}({options})"


def _literal(value: str | int | float | bool) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    return f"'{value}'" if isinstance(value, str) else str(value)
