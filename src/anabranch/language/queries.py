"""CREATE QUERY and the SELECT in it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from anabranch.language.calls import call
from anabranch.language.clauses import (
    Clauses,
    Open,
    accept_clause,
    at_clause,
    at_unsupported,
    gather,
)
from anabranch.language.expressions import (
    ends_operand,
    is_expression,
    outside_brackets,
    parse_expression,
    take_expression,
)
from anabranch.language.from_items import from_items
from anabranch.language.lexer import Kind, Token
from anabranch.language.standby import STANDBY_PARTS, standby
from anabranch.language.statements import (
    CreateQuery,
    Expression,
    Name,
    Select,
    SelectItem,
    StarItem,
)
from anabranch.language.tokens import Cursor
from anabranch.language.wording import closest

_CLAUSES: Clauses = {
    "STANDBY": standby,
    "INTO": lambda cursor: _into(cursor),
    "AT": lambda cursor: cursor.name("the name of a site"),
}
"""What may follow a SELECT, whose own clauses come in a fixed order."""
_ORDERED = ("WHERE", "GROUP", "HAVING")
_ORDER = "WHERE, GROUP BY and HAVING come once, in this order, right after FROM"
_MISPLACED = {
    **dict.fromkeys(_ORDERED, _ORDER),
    "MASTER": "MASTER comes before SELECT",
    **{word: f"{word} is a part of STANDBY and comes right after it" for word in STANDBY_PARTS},
    "ON": "ON comes right after STANDBY, or after the sink in INTO",
}


def create_query(cursor: Cursor, start: Token) -> CreateQuery:
    """create query := CREATE QUERY name AS query; the first two words are passed already."""
    name = cursor.name("the name of the query")
    cursor.expect("AS")
    return query(cursor, start, name)


def query(cursor: Cursor, start: Token, name: Name) -> CreateQuery:
    """query := select {STANDBY … | INTO call [ON site] | AT site}"""
    select = _select(cursor)
    found = gather(cursor, _CLAUSES, _MISPLACED)
    site: Name | None = found.get("AT")
    sink, sink_site = found.get("INTO", (None, None))
    span = cursor.since(start)
    return CreateQuery(
        name=name.text,
        select=select,
        sink=sink,
        sink_site=sink_site,
        standby=found.get("STANDBY"),
        site=site.text if site else None,
        name_span=name.span,
        site_span=site.span if site else None,
        span=span,
        text=cursor.script.slice(span),
    )


def _into(cursor: Cursor) -> Open:
    """INTO call [ON site]; AT is the query's own site, wherever it stands."""
    sink = call(cursor, "the name of a sink")
    site = cursor.name("the name of a site") if cursor.accept("ON") else None
    return Open((sink, site), () if site else ("ON",))


def _select(cursor: Cursor) -> Select:
    """select := [MASTER name {, name}] SELECT item {, item} FROM … [WHERE expression]
    [GROUP BY expression {, expression}] [HAVING expression]"""
    start = cursor.peek()
    masters = _masters(cursor)
    cursor.expect(*(("SELECT",) if masters else ("MASTER", "SELECT")))
    if cursor.at("DISTINCT"):
        raise cursor.error(cursor.peek().span, "SELECT DISTINCT is not supported")
    items = [_item(cursor)]
    while cursor.accept(","):
        items.append(_item(cursor))
    if not cursor.accept("FROM"):
        raise cursor.unexpected((",", "FROM"))
    sources = from_items(cursor)
    where = _condition(cursor, ("GROUP BY", "HAVING")) if cursor.accept("WHERE") else None
    group = _group(cursor) if accept_clause(cursor, "GROUP") else ()
    having = _condition(cursor) if cursor.accept("HAVING") else None
    return Select(masters, tuple(items), sources, where, group, having, cursor.since(start))


def _masters(cursor: Cursor) -> tuple[Name, ...]:
    """MASTER name {, name}"""
    if not cursor.accept("MASTER"):
        return ()
    masters = [cursor.name("the name of a stream")]
    while cursor.accept(","):
        masters.append(cursor.name("the name of a stream"))
    if not cursor.at("SELECT"):
        raise cursor.unexpected((",", "SELECT"))
    return tuple(masters)


def _group(cursor: Cursor) -> tuple[Expression, ...]:
    """GROUP BY expression {, expression}"""

    def stops(cursor: Cursor, before: Token | None) -> bool:
        return cursor.at(",") or _condition_stops(cursor, before)

    found: list[Expression] = []
    while not found or cursor.accept(","):
        tokens = take_expression(cursor, stops)
        found.append(parse_expression(cursor, tokens, ("HAVING", *_CLAUSES)))
    return tuple(found)


def _item(cursor: Cursor) -> SelectItem | StarItem:
    """item := * | name.* | expression [[AS] name]"""
    start = cursor.peek()
    if cursor.accept("*"):
        return StarItem(None, start.span)
    if start.is_name and (cursor.peek(1).key, cursor.peek(2).key) == (".", "*"):
        qualifier = cursor.name("the name of a stream")
        cursor.advance()
        cursor.advance()
        return StarItem(qualifier, cursor.since(start))
    tokens = take_expression(cursor, _item_stops)
    if not cursor.at(",", "FROM"):
        _reject_misspelt_from(cursor, tokens)
    expression, alias = _aliased(cursor, tokens)
    return SelectItem(expression, alias, cursor.since(start))


def _item_stops(cursor: Cursor, before: Token | None) -> bool:
    if cursor.at(","):
        return True
    if cursor.at("FROM"):
        # a IS DISTINCT FROM b
        return not before or before.key != "DISTINCT"
    return _condition_stops(cursor, before)


def _reject_misspelt_from(cursor: Cursor, tokens: Sequence[Token]) -> None:
    for before, token in pairwise(tokens):
        if token.kind is Kind.WORD and ends_operand(before) and closest(token.text, ["FROM"]):
            raise cursor.unexpected((",", "FROM"), token)


def _aliased(cursor: Cursor, tokens: list[Token]) -> tuple[Expression, Name | None]:
    """Split `expression [[AS] name]`. A name without AS is what no longer fits the expression."""
    as_ = outside_brackets(tokens, "AS")
    if as_ is not None:
        return _aliased_with_as(cursor, tokens, as_)
    if (
        len(tokens) > 1
        and tokens[-1].is_name
        and ends_operand(tokens[-2])
        and not is_expression(cursor, tokens)
        and is_expression(cursor, tokens[:-1])
    ):
        alias = cursor.as_name(tokens[-1], "a name")
        return parse_expression(cursor, tokens[:-1]), alias
    return parse_expression(cursor, tokens, ("FROM",)), None


def _aliased_with_as(cursor: Cursor, tokens: list[Token], as_: int) -> tuple[Expression, Name]:
    before, after = tokens[:as_], tokens[as_ + 1 :]
    if not before:
        raise cursor.unexpected(("an expression",), tokens[as_])
    if not after:
        raise cursor.unexpected(("a name after AS",))
    alias = cursor.as_name(after[0], "a name after AS")
    if len(after) > 1:
        raise cursor.unexpected((",", "FROM"), after[1])
    return parse_expression(cursor, before), alias


def _condition(cursor: Cursor, follow: Sequence[str] = ()) -> Expression:
    tokens = take_expression(cursor, _condition_stops)
    return parse_expression(cursor, tokens, (*follow, *_CLAUSES))


def _condition_stops(cursor: Cursor, before: Token | None) -> bool:
    if before is None or not ends_operand(before):
        return cursor.at("INTO", "WHERE") or bool(at_clause(cursor, "GROUP"))
    return bool(at_clause(cursor, *_ORDERED, *_CLAUSES) or at_unsupported(cursor))
