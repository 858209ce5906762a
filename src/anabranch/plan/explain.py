"""A query's processing tree, drawn as text: operators from the sink down to the sources."""

from __future__ import annotations

from collections.abc import Callable

from anabranch.plan.catalog import Definition, QueryDef
from anabranch.plan.operators import Call, Selection

Lookup = Callable[[str], Definition]


def explain(query: QueryDef, lookup: Lookup) -> str:
    """One operator a line with the site that runs it; a link is shown where the site changes."""
    return "\n".join(_align(_query_lines(query, lookup, depth=0, to_site=query.site)))


def _query_lines(
    query: QueryDef, lookup: Lookup, *, depth: int, to_site: str
) -> list[tuple[str, str]]:
    lines = _link(query.site, to_site, query.name, depth)
    depth += len(lines)
    title = query.name or "(query)"
    if query.sink and depth == 0:
        lines.append((_node(depth, f"sink {show_call(query.sink)}"), query.site))
        depth += 1
    for operator in reversed(query.operators):
        if isinstance(operator, Selection):
            text = f"selection {operator.condition}"
        else:
            text = "projection " + ", ".join(_item(*item) for item in operator.items)
        lines.append((_node(depth, f"{text}  [{title}]"), query.site))
        depth += 1
    return lines + _input_lines(lookup(query.input), lookup, depth=depth, to_site=query.site)


def _input_lines(
    source: Definition, lookup: Lookup, *, depth: int, to_site: str
) -> list[tuple[str, str]]:
    if isinstance(source, QueryDef):
        return _query_lines(source, lookup, depth=depth, to_site=to_site)
    lines = _link(source.site, to_site, source.name, depth)
    text = f"stream {source.name} from {show_call(source.source)}"
    return [*lines, (_node(depth + len(lines), text), source.site)]


def _link(from_site: str, to_site: str, stream: str, depth: int) -> list[tuple[str, str]]:
    if from_site == to_site:
        return []
    return [(_node(depth, f"link {stream}"), f"{from_site} → {to_site}")]


def _node(depth: int, text: str) -> str:
    return f"{'   ' * (depth - 1)}└─ {text}" if depth else text


def _item(sql: str, name: str) -> str:
    return name if sql in (name, f"`{name}`") else f"{sql} AS {name}"


def show_call(call: Call) -> str:
    options = ", ".join(f"{key} = {_literal(value)}" for key, value in call.options.items())
    return f"{call.name}({options})"


def _literal(value: str | int | float | bool) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    return f"'{value}'" if isinstance(value, str) else str(value)


def _align(lines: list[tuple[str, str]]) -> list[str]:
    width = max(len(text) for text, _ in lines) + 2
    return [f"{text:<{width}}@ {site}" for text, site in lines]
