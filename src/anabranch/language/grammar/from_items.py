"""FROM: streams and tables with their windows and aliases, UNION ALL, and the state of a stage."""

from __future__ import annotations

from typing import NoReturn

from anabranch.language.grammar.clauses import (
    JOINS,
    SELDOM,
    at_clause,
    at_unsupported,
    reject_unsupported,
)
from anabranch.language.grammar.keep import at_past, past
from anabranch.language.grammar.lexer import Token, TokenKind
from anabranch.language.grammar.statements import (
    Extent,
    FromItem,
    Name,
    RowCount,
    Select,
    SelectState,
    StarItem,
    WindowNode,
)
from anabranch.language.grammar.tokens import Cursor
from anabranch.language.grammar.translations import clause, reject_window_function
from anabranch.language.source import closest
from anabranch.units import unit_meant

AFTER_FROM = ("WHERE", "GROUP BY", "HAVING", "STANDBY", "DEADLINE", "COST", "INTO", "AT")
"""What may follow the items of FROM."""
_FOLLOWS = (
    "WHERE",
    "GROUP",
    "HAVING",
    "STANDBY",
    "DEADLINE",
    "COST",
    "INTO",
    "AT",
    "UNION",
    *SELDOM,
)


def from_items(cursor: Cursor) -> tuple[FromItem, ...]:
    """FROM := item {, item}"""
    items = [_item(cursor)]
    while cursor.accept(","):
        items.append(_item(cursor))
    return tuple(items)


def _item(cursor: Cursor) -> FromItem:
    """item := name [window] [past] [[AS] alias]"""
    start = cursor.peek()
    if cursor.at("("):
        raise cursor.error(
            start.span, "subqueries are not supported", "Make it a query of its own."
        )
    reject_window_function(cursor)
    name = cursor.name("the name of a stream")
    window = _window(cursor) if cursor.at("[") else None
    since = past(cursor) if at_past(cursor) else None
    alias = _alias(cursor)
    if alias and cursor.at("["):
        _reject_late_window(cursor, name, window, alias)
    if not cursor.at_end() and not cursor.at(",") and not at_clause(cursor, *_FOLLOWS):
        _reject_after_item(cursor, alone=not window and not alias)
    return FromItem(name, window, alias, cursor.since(start), since)


def _alias(cursor: Cursor) -> Name | None:
    if cursor.accept("AS"):
        return cursor.name("an alias")
    if not cursor.peek().is_name or _starts_clause(cursor):
        return None
    _reject_misspelt_clause(cursor)
    return cursor.name("an alias")


def _window(cursor: Cursor) -> WindowNode:
    """window := [ extent [SLIDE extent] ], both durations or both rows"""
    start = cursor.expect("[")
    width = _extent(cursor, rows_said=False)
    slide = None
    if cursor.accept("SLIDE"):
        slide = _slide(cursor, width)
    if not cursor.at("]"):
        raise cursor.unexpected(("]",) if slide else ("SLIDE", "]"))
    cursor.advance()
    return WindowNode(width, slide, cursor.since(start))


def _slide(cursor: Cursor, width: Extent) -> Extent:
    slide = _extent(cursor, rows_said=isinstance(width, RowCount))
    if type(slide) is not type(width):
        kind = "a number of rows" if isinstance(width, RowCount) else "a duration"
        example = "[100 ROWS SLIDE 10]" if isinstance(width, RowCount) else "[30m SLIDE 10m]"
        raise cursor.error(
            slide.span, f"the window is {kind}, so SLIDE takes one too", f"As in {example}."
        )
    return slide


def _extent(cursor: Cursor, *, rows_said: bool) -> Extent:
    """extent := duration | n ROWS; the second extent of rows may leave ROWS out"""
    start = cursor.peek()
    if start.kind is not TokenKind.NUMBER:
        expected = ("a duration such as 10s", "a number of ROWS")
        raise cursor.unexpected(expected, remedy=clause(start))
    if duration := cursor.accept_duration():
        if duration.us == 0:
            raise cursor.error(duration.span, "a window cannot be empty")
        return duration
    counted = cursor.peek(1).key in ("ROWS", "ROW") or (rows_said and cursor.peek(1).key == "]")
    if counted:
        return _count(cursor)
    word = cursor.peek(1)
    if word.kind is TokenKind.WORD and (unit := unit_meant(word.text)):
        span = start.span.to(word.span)
        message = f"'{word.text}' is no unit of time"
        raise cursor.error(span, message, f"Write {start.text}{unit}.")
    if start.text.isdigit():
        number = start.text if len(start.text) <= 20 else f"{start.text[:20]}…"
        remedy = f"Write {number}s for seconds, or {number} ROWS."
        raise cursor.error(start.span, f"the window of '{number}' has no unit", remedy)
    return cursor.duration()


def _count(cursor: Cursor) -> RowCount:
    token = cursor.advance()
    ascii_digits = token.text.isascii() and token.text.isdigit()
    if not ascii_digits or len(token.text) > 18 or int(token.text) == 0:
        raise cursor.error(token.span, f"{cursor.show(token)} is no number of rows")
    cursor.accept("ROWS", "ROW")
    return RowCount(int(token.text), cursor.since(token))


def _reject_late_window(
    cursor: Cursor, name: Name, window: WindowNode | None, alias: Name
) -> NoReturn:
    start = cursor.peek()
    if window:
        raise cursor.error(start.span, f"{name.text} has a window already", "Keep one of them.")
    _window(cursor)
    brackets = cursor.script.slice(cursor.since(start))
    raise cursor.error(
        cursor.since(start),
        "the window comes before the alias",
        f"Write {name.text}{brackets} AS {alias.text}.",
    )


def _reject_after_item(cursor: Cursor, *, alone: bool) -> NoReturn:
    reject_unsupported(cursor)
    expected = ("[", ",", *AFTER_FROM, ";") if alone else (",", *AFTER_FROM, ";")
    raise cursor.unexpected(expected, remedy=clause(cursor.peek()))


def _starts_clause(cursor: Cursor) -> bool:
    return bool(at_clause(cursor, *_FOLLOWS, *JOINS) or at_unsupported(cursor))


def _reject_misspelt_clause(cursor: Cursor) -> None:
    """A word that looks like a keyword and has more after it than an alias can is a misspelling.

    STANDBY may stand alone, and taken for an alias it would leave the query unprotected.
    """
    after = cursor.peek(1)
    follows = (*_FOLLOWS, ",", "[", ";", "")
    word = cursor.peek()
    if after.key not in follows and (remedy := clause(word)):
        raise cursor.unexpected((",", *AFTER_FROM, ";"), remedy=remedy)
    keywords = [text.split()[0] for text in AFTER_FROM]
    misspelt = after.key not in follows and closest(word.text, keywords)
    if word.kind is TokenKind.WORD and (misspelt or closest(word.text, ["STANDBY"], 0.85)):
        raise cursor.unexpected((*AFTER_FROM, ";"))


_REMEDY = "Make what is selected a query of its own and unite that."


def union(cursor: Cursor) -> tuple[Name, ...]:
    """{UNION ALL SELECT * FROM name}"""
    names: list[Name] = []
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
        names.append(cursor.name("the name of a stream"))
    return tuple(names)


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


def at_state(cursor: Cursor) -> bool:
    """Whether the SELECT that starts here reads a state."""
    ahead = 0
    while (token := cursor.peek(ahead)).key not in (";", ""):
        if token.key == "FROM" and cursor.peek(ahead + 1).key == "STATE":
            return cursor.peek(ahead + 2).is_name
        ahead += 1
    return False


def select_state(cursor: Cursor, start: Token) -> SelectState:
    """select := SELECT … FROM STATE name …; all but STATE name is Spark SQL over a table"""
    while not cursor.at("FROM"):
        cursor.advance()
    before = cursor.since(start).to(cursor.advance().span)
    cursor.expect("STATE")
    name = cursor.name("the name of a query")
    behind = cursor.previous
    while not cursor.at_end():
        cursor.advance()
    span = cursor.since(start)
    text = cursor.script.slice(span)
    after = text[behind.span.end - start.span.start :]
    return SelectState(name, cursor.script.slice(before), after, span, text)
