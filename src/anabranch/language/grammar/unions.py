"""SELECT * FROM a UNION ALL SELECT * FROM b: streams with the same columns as one."""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.language.binding.from_clause import Lookup
from anabranch.language.grammar.statements import Name, Select, StarItem
from anabranch.language.grammar.tokens import Cursor
from anabranch.language.source import Script
from anabranch.language.wording import did_you_mean_name
from anabranch.plan.catalog import QueryDef, Relation, StreamDef
from anabranch.plan.graph import Port
from anabranch.plan.spec import Column

_REMEDY = "Make what is selected a query of its own and unite that."


def union(cursor: Cursor) -> tuple[Name, ...]:
    """{UNION ALL SELECT * FROM name}"""
    found: list[Name] = []
    while cursor.at("UNION"):
        start = cursor.advance()
        if not cursor.accept("ALL"):
            remedy = "Write UNION ALL: a stream has no end to wait for."
            raise cursor.error(start.span, "UNION is not supported", remedy)
        cursor.expect("SELECT")
        if not cursor.accept("*"):
            message = "UNION ALL takes SELECT * FROM a stream"
            raise cursor.error(cursor.peek().span, message, _REMEDY)
        cursor.expect("FROM")
        found.append(cursor.name("the name of a stream"))
    return tuple(found)


def checked_union(cursor: Cursor, select: Select) -> Select:
    """Raises if what is before UNION ALL is more than SELECT * FROM a stream."""
    plain = (
        len(select.items) == 1
        and isinstance(select.items[0], StarItem)
        and len(select.sources) == 1
        and not select.sources[0].window
        and not (select.masters or select.where or select.group or select.having)
    )
    if select.union and not plain:
        message = "UNION ALL takes SELECT * FROM a stream"
        raise cursor.error(select.span, message, _REMEDY)
    return select


def union_ports(
    script: Script,
    first: Relation,
    others: Iterable[Name],
    lookup: Lookup,
    names: Iterable[str],
) -> tuple[Port, ...]:
    """The inputs behind UNION ALL. Raises for one that is no stream, or has other columns."""
    found: list[Port] = []
    for name in others:
        other = lookup(name.text)
        if not isinstance(other, StreamDef | QueryDef):
            remedy = did_you_mean_name(name.text, list(names))
            raise script.error(name.span, f"unknown stream or query '{name.text}'", remedy)
        if _typed(other.columns) != _typed(first.columns):
            message = f"{other.name} has other columns than {first.name}"
            shown = ", ".join(f"{one.name} {one.type.upper()}" for one in first.columns)
            raise script.error(name.span, message, f"All must have {shown}, in this order.")
        alias = f"{other.name} {len(found) + 2}"
        found.append(Port(stream=other.name, alias=alias))
    return tuple(found)


def _typed(columns: Iterable[Column]) -> list[tuple[str, str]]:
    return [(one.name.lower(), one.type.lower()) for one in columns]
