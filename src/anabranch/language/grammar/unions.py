"""SELECT * FROM a UNION ALL SELECT * FROM b: merges streams with the same columns into one."""

from __future__ import annotations

from anabranch.language.grammar.statements import Name, Select, StarItem
from anabranch.language.grammar.tokens import Cursor

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
    """The select, if all that stands before UNION ALL is SELECT * FROM a stream; else raises."""
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
