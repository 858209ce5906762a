"""FROM, MASTER and UNION ALL: a query's inputs, their windows, and the inputs whose tuples it is
evaluated at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from anabranch.language.expressions.scope import QueryInput, Scope
from anabranch.language.grammar.statements import (
    Duration,
    FromItem,
    Name,
    RowCount,
    Select,
    WindowNode,
)
from anabranch.language.source import Script, did_you_mean_name, listed
from anabranch.plan import catalog
from anabranch.plan.catalog import (
    AggregateDef,
    AnyDef,
    ApproximateDef,
    PocketDef,
    QueryDef,
    StreamDef,
)
from anabranch.plan.operators import Port
from anabranch.plan.spec import Column
from anabranch.plan.windows import Panes, Range, RowPanes, Rows, TableWindow, TimePanes, Window

Lookup = Callable[[str], AnyDef | None]
"""What has this name, whatever its case."""
_INSTANT_US = 1
"""Of a window that holds the tuples of one event time and nothing older."""


def bind_from(
    script: Script, items: Sequence[FromItem], lookup: Lookup, names: Iterable[str]
) -> Scope:
    """The inputs; `names` are those that `lookup` knows, for suggestions."""
    sources: list[QueryInput] = []
    for item in items:
        source = _source(script, item, lookup, names)
        if any(one.alias.lower() == source.alias.lower() for one in sources):
            raise script.error(
                (item.alias or item.name).span,
                f"two inputs are called '{source.alias}'",
                f"Give one of them a name of its own, as in {item.name.text}[10s] AS other.",
            )
        sources.append(source)
    if all(source.is_table for source in sources):
        raise script.error(
            items[0].span,
            "a query needs a stream, whose tuples it is evaluated at",
            "Name one in FROM besides the table.",
        )
    return Scope(script, sources)


def _source(script: Script, item: FromItem, lookup: Lookup, names: Iterable[str]) -> QueryInput:
    definition = lookup(item.name.text)
    if definition is None:
        remedy = did_you_mean_name(item.name.text, names) or "SHOW STREAMS lists those there are."
        raise script.error(item.name.span, f"unknown stream '{item.name.text}'", remedy)
    if isinstance(definition, AggregateDef):
        raise script.error(item.name.span, f"{definition.name} is an aggregate, not a stream")
    if isinstance(definition, PocketDef):
        message = f"{definition.name} is a pocket, not a stream"
        raise script.error(item.name.span, message, f"Read {definition.output}, which it fills.")
    if isinstance(definition, ApproximateDef):
        message = f"the results of {definition.name} are in its table, where estimates come late"
        raise script.error(item.name.span, message, "Read that: CREATE TABLE … FROM postgres(…).")
    source = QueryInput(definition, item.alias.text if item.alias else definition.name, item)
    if source.is_table and item.window:
        raise script.error(
            item.window.span,
            f"{definition.name} is a table and takes no window",
            "All its rows take part; leave the brackets out.",
        )
    if source.is_table and item.past:
        message = f"{source.definition.name} is a table, which is read whole"
        raise script.error(item.past.span, message, f"Leave {item.past.asked} out.")
    return source


def _written(item: FromItem, window: str) -> str:
    return f"{item.name.text}{window}" + (f" AS {item.alias.text}" if item.alias else "")


def windows(scope: Scope) -> tuple[Window, ...]:
    """The windows of a query that joins. One stream among tables needs none: each of its tuples
    meets the tables once."""
    streams = sum(not source.is_table for source in scope.sources)
    return tuple(_window(scope.script, source, alone=streams == 1) for source in scope.sources)


def _window(script: Script, source: QueryInput, *, alone: bool) -> Window:
    if source.is_table:
        return TableWindow()
    node = source.item.window
    if node is None and alone:
        return Range(width_us=_INSTANT_US)
    if node is None:
        raise script.error(
            source.item.span,
            f"{source.alias} needs a window, since the query reads several streams",
            f"Write how long its tuples take part, as in {_written(source.item, '[10s]')}.",
        )
    if node.slide:
        raise script.error(
            node.span,
            "SLIDE is for aggregates",
            f"Leave it out: {_written(source.item, _brackets(node))}.",
        )
    if isinstance(node.width, Duration):
        return Range(width_us=node.width.us)
    return Rows(count=node.width.rows)


def _brackets(node: WindowNode) -> str:
    width = node.width
    return f"[{width.text if isinstance(width, Duration) else f'{width.rows} ROWS'}]"


def panes(source: QueryInput) -> Panes | None:
    """The windows of an aggregate; without SLIDE each begins where the one before it ends."""
    node = source.item.window
    if node is None:
        return None
    width, slide = node.width, node.slide or node.width
    if isinstance(width, RowCount) and isinstance(slide, RowCount):
        return RowPanes(width=width.rows, slide=slide.rows)
    assert isinstance(width, Duration)
    assert isinstance(slide, Duration), "the parser saw to it that both are of one kind"
    return TimePanes(width_us=width.us, slide_us=slide.us)


def masters(scope: Scope, select: Select) -> tuple[int, ...]:
    """The indexes of the inputs whose tuples a query is evaluated at; all streams if MASTER is left
    out.
    """
    if not select.masters:
        return tuple(i for i, source in enumerate(scope.sources) if not source.is_table)
    indexes: list[int] = []
    for name in select.masters:
        index = _master(scope, name)
        if index in indexes:
            raise scope.script.error(name.span, f"MASTER names {name.text} twice")
        indexes.append(index)
    return tuple(indexes)


def _master(scope: Scope, name: Name) -> int:
    low = name.text.lower()
    sources = scope.sources
    indexes = [i for i, one in enumerate(sources) if one.alias.lower() == low]
    indexes = indexes or [i for i, one in enumerate(sources) if one.definition.name.lower() == low]
    if not indexes:
        aliases = [one.alias for one in sources]
        remedy = did_you_mean_name(name.text, aliases)
        remedy = remedy or f"MASTER names inputs in FROM: {listed(aliases, 'or')}."
        raise scope.script.error(name.span, f"'{name.text}' is not in FROM", remedy)
    if len(indexes) > 1:
        aliases = [sources[i].alias for i in indexes]
        message = f"{name.text} is in FROM more than once"
        raise scope.script.error(name.span, message, f"Write {listed(aliases, 'or')}.")
    if sources[indexes[0]].is_table:
        raise scope.script.error(
            name.span,
            f"{name.text} is a table, and only streams can be MASTER",
            "Name a stream: a query is evaluated at its tuples.",
        )
    return indexes[0]


def union_ports(
    script: Script,
    first: catalog.Relation,
    others: Iterable[Name],
    lookup: Lookup,
    names: Iterable[str],
) -> tuple[Port, ...]:
    """The inputs after UNION ALL. Raises for a name that is no stream or has other columns."""
    ports: list[Port] = []
    for name in others:
        other = lookup(name.text)
        if not isinstance(other, StreamDef | QueryDef):
            remedy = did_you_mean_name(name.text, list(names))
            raise script.error(name.span, f"unknown stream or query '{name.text}'", remedy)
        if _typed(other.columns) != _typed(first.columns):
            message = f"{other.name} has other columns than {first.name}"
            shown = ", ".join(f"{one.name} {one.type.upper()}" for one in first.columns)
            raise script.error(name.span, message, f"All must have {shown}, in this order.")
        alias = f"{other.name} {len(ports) + 2}"
        ports.append(Port(stream=other.name, alias=alias))
    return tuple(ports)


def _typed(columns: Iterable[Column]) -> list[tuple[str, str]]:
    return [(one.name.lower(), one.type.lower()) for one in columns]
