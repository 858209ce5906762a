"""A query's processing tree, from the sink down to the sources, one operator a branch; EXPLAIN
shows it before and after rewriting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from anabranch.plan.catalog import QueryDef, Relation, StreamDef
from anabranch.plan.expressions import Expr, Use, shown
from anabranch.plan.operators import (
    Aggregate,
    AggregateCall,
    Item,
    Join,
    Node,
    Operator,
    Port,
    Selection,
    Union,
)
from anabranch.plan.spec import Call, Plain, Secret
from anabranch.plan.stage import Stage
from anabranch.plan.windows import Range, RowPanes, Rows, TimePanes, Until, Window
from anabranch.units import exact_duration, show_duration

Lookup = Callable[[str], Relation]


@dataclass(frozen=True)
class Branch:
    """`text` says what is done at `site` with the results of `inputs`. A link names two sites
    there.
    """

    text: str
    site: str
    inputs: tuple[Branch, ...] = ()
    notes: tuple[str, ...] = ()
    """What else there is to say of it."""
    node: str | None = None
    """The node whose last operator it is."""

    def noted(self, notes: Mapping[str, str]) -> Branch:
        """The branch with a note at the last operator of each node that has one."""
        inputs = tuple(one.noted(notes) for one in self.inputs)
        note = notes.get(self.node or "")
        return replace(self, inputs=inputs, notes=(*self.notes, *([note] if note else [])))


def tree(
    query: QueryDef,
    nodes: Sequence[Node],
    lookup: Lookup,
    notes: Mapping[str, str] | None = None,
) -> Branch:
    """The tree of `query` when it is run as `nodes`, the last of which gives its output."""
    return _tree(query, nodes, lookup).noted(notes or {})


def _tree(query: QueryDef, nodes: Sequence[Node], lookup: Lookup) -> Branch:
    named = {node.name: node for node in nodes}
    title = query.name or "(query)"
    root = _noted(_node(nodes[-1], named, lookup, title), query)
    if query.sink is None:
        return root
    site = query.sink_site or query.site
    if site != query.site:
        root = Branch(f"link {title}", f"{query.site} → {site}", (root,))
    return Branch(f"sink {show_call(query.sink)}", site, (root,))


def _noted(branch: Branch, query: QueryDef) -> Branch:
    notes = list(branch.notes)
    if query.standby:
        notes.append(f"standby: {query.standby.explained()}")
    if query.keep:
        notes.append(f"keep: {query.keep} for those who come later")
    notes += _times(query)
    if query.stage_why and not query.stages:
        notes.append(f"no stage: {query.stage_why}")
    return replace(branch, notes=tuple(notes))


def _times(query: QueryDef) -> list[str]:
    """The deadlines of a query that has one or is read by one that has."""
    notes = [str(query.deadline)] if query.deadline else []
    for name, urgency in query.urgencies.items():
        task, whole = show_duration(urgency.deadline_us), show_duration(urgency.summed_us)
        notes.append(f"{name}: sub-deadline {task}, {whole} from the source on")
    return notes


def _node(node: Node, named: Mapping[str, Node], lookup: Lookup, title: str) -> Branch:
    inputs = tuple(_input(port, node, named, lookup) for port in node.inputs)
    words = _Words(node)
    branch: Branch | None = None
    for operator in node.operators:
        text = f"{words.operator(operator)}  [{title}]"
        notes = words.notes(operator) if isinstance(operator, Join) else ()
        branch = Branch(text, node.site, (branch,) if branch else inputs, notes)
    return replace(branch or Branch(title, node.site, inputs), node=node.name)


def _input(port: Port, node: Node, named: Mapping[str, Node], lookup: Lookup) -> Branch:
    if inner := named.get(port.stream):
        source, site = _node(inner, named, lookup, inner.name), inner.site
    else:
        definition = lookup(port.stream)
        source, site = _relation(definition, lookup), definition.site
        if port.past:
            note = f"read {port.past}: what is kept of it first, then what comes"
            source = replace(source, notes=(*source.notes, note))
    if site == node.site:
        return source
    return Branch(f"link {port.stream}", f"{site} → {node.site}", (source,))


def _relation(relation: Relation, lookup: Lookup) -> Branch:
    if isinstance(relation, QueryDef):
        named = {node.name: node for node in relation.nodes}
        return _noted(_node(relation.nodes[-1], named, lookup, relation.name), relation)
    if isinstance(relation, StreamDef) and relation.stage and relation.stage.role == "late":
        return Branch(f"late tuples of {relation.stage.input.stream}  [stage]", relation.site)
    if isinstance(relation, StreamDef) and relation.stage:
        return _stage(relation, relation.stage, lookup)
    notes: tuple[str, ...] = ()
    if isinstance(relation, StreamDef) and relation.keep:
        notes = (f"keep: {relation.keep} for those who come later",)
    if isinstance(relation, StreamDef) and relation.source is None:
        return Branch(f"stream {relation.name}", relation.site, notes=notes)
    assert relation.source is not None
    text = f"{relation.kind} {relation.name} from {show_call(relation.source)}"
    return Branch(text, relation.site, notes=notes)


def _stage(stream: StreamDef, stage: Stage, lookup: Lookup) -> Branch:
    """The aggregate of a stage, which reads its source itself."""
    selections = [Selection(condition=one) for one in stage.conditions]
    node = Node(
        name=stream.name,
        site=stream.site,
        inputs=(Port(stream=stage.input.stream, alias=stage.input.stream),),
        operators=(*selections, stage.aggregate),
        columns=stream.columns,
    )
    branch = _node(node, {}, lookup, "stage")
    return replace(branch, notes=stage.notes)


class _Words:
    """A node's operators as people would describe them: columns go by their names alone where there
    is only one input, and results of aggregates by the call that gives them.
    """

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
        if isinstance(operator, Union):
            numbered = enumerate(self._aliases, 1)
            return f"union {', '.join(alias.removesuffix(f' {n}') for n, alias in numbered)}"
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

    def notes(self, join: Join) -> tuple[str, ...]:
        """How the join finds combinations."""
        aliases = self._aliases[: len(join.windows)]
        if len(aliases) < 2:
            return ()
        looked_up = [one for one in join.conditions if one.indexed]
        notes = [f"index: {self._text(one.expr)}" for one in looked_up]
        groups = _connected(aliases, [one.indexed for one in looked_up if one.indexed])
        if len(groups) > 1:
            product = " × ".join(" and ".join(group) for group in groups)
            notes.append(
                f"product: {product}: all combinations are tried; an equality would be looked up"
            )
        return tuple(notes)

    def _aggregate(self, aggregate: Aggregate) -> str:
        calls = ", ".join(self._calls.values()) or "groups"
        text = f"aggregate {calls} over {_panes(aggregate.panes)}"
        keys = ", ".join(self._text(key.expr) for key in aggregate.keys)
        return f"{text} by {keys}" if keys else text

    def _call(self, call: AggregateCall) -> str:
        arguments = ", ".join(self._text(one) for one in call.arguments) or "*"
        return f"{call.function}({'DISTINCT ' if call.distinct else ''}{arguments})"


def _connected(aliases: Sequence[str], pairs: Sequence[tuple[str, str]]) -> list[list[str]]:
    """The inputs that equalities join, directly or through others."""
    groups = [{alias} for alias in aliases]
    for pair in pairs:
        joined = [group for group in groups if group & set(pair)]
        groups = [group for group in groups if group not in joined] + [set().union(*joined)]
    named = [[alias for alias in aliases if alias in group] for group in groups]
    return sorted(named, key=lambda group: aliases.index(group[0]))


def _window(window: Window) -> str:
    if isinstance(window, Range):
        return f"[{exact_duration(window.width_us)}]"
    if isinstance(window, Rows):
        return f"[{window.count} ROWS]"
    return " (as joined)" if isinstance(window, Until) else ""


def _panes(panes: TimePanes | RowPanes) -> str:
    if isinstance(panes, RowPanes):
        slide = f" SLIDE {panes.slide} ROWS" if panes.slide != panes.width else ""
        return f"[{panes.width} ROWS{slide}]"
    width, slide_us = exact_duration(panes.width_us), panes.slide_us
    slide = f" SLIDE {exact_duration(slide_us)}" if slide_us != panes.width_us else ""
    return f"[{width}{slide}]"


def show_call(call: Call) -> str:
    options = ", ".join(f"{key} = {_literal(value)}" for key, value in call.options.items())
    return f"{call.name}({options})"


def _literal(value: Plain | Secret) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    return f"'{value}'" if isinstance(value, str) else str(value)


def explain(query: QueryDef, lookup: Lookup, notes: Mapping[str, str] | None = None) -> str:
    """One operator a line with the site that runs it; a link is shown where the site changes.
    `notes` say more about nodes.
    """
    run = draw(tree(query, query.nodes, lookup, notes))
    if query.nodes == (query.written,):
        return run
    written = draw(tree(query, (query.written,), lookup))
    return f"As written:\n{written}\n\nAs run:\n{run}"


def draw(branch: Branch) -> str:
    lines = list(_lines(branch, "", ""))
    width = max(len(text) for text, site in lines if site) + 2
    return "\n".join(f"{text:<{width}}@ {site}" if site else text for text, site in lines)


def _lines(branch: Branch, first: str, rest: str) -> Iterator[tuple[str, str]]:
    """The branch's lines: `first` leads its own line, `rest` those below it. Notes have no site."""
    yield first + branch.text, branch.site
    for note in branch.notes:
        yield rest + ("│  " if branch.inputs else "   ") + note, ""
    for index, inner in enumerate(branch.inputs):
        last = index == len(branch.inputs) - 1
        yield from _lines(
            inner, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  ")
        )
