"""CREATE QUERY and the SELECT in it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from anabranch.language.grammar import translations
from anabranch.language.grammar.calls import call, options_in_brackets
from anabranch.language.grammar.clauses import (
    Clauses,
    Open,
    accept_clause,
    at_clause,
    at_unsupported,
    gather,
)
from anabranch.language.grammar.expressions import (
    ends_operand,
    is_expression,
    outside_brackets,
    parse_expression,
    take_expression,
)
from anabranch.language.grammar.from_items import checked_union, from_items, union
from anabranch.language.grammar.keep import keep
from anabranch.language.grammar.lexer import Token, TokenKind
from anabranch.language.grammar.service_levels import (
    STANDBY_PARTS,
    approximate_clause,
    cost,
    deadline,
    standby,
)
from anabranch.language.grammar.statements import (
    CallNode,
    CreateQuery,
    Expression,
    Name,
    Select,
    SelectItem,
    StageNode,
    StarItem,
)
from anabranch.language.grammar.tokens import Cursor
from anabranch.language.source import closest

_CLAUSES: Clauses = {
    "STANDBY": standby,
    "DEADLINE": deadline,
    "COST": cost,
    "KEEP": keep,
    "APPROXIMATE": approximate_clause,
    "INTO": lambda cursor: _into(cursor),
    "AT": lambda cursor: _sites(cursor),
    "NOT": lambda cursor: _not_at(cursor),
    "STAGE": lambda cursor: _stage(cursor, wanted=True),
    "NO": lambda cursor: _stage(cursor, wanted=False),
}
"""What may follow a SELECT, whose own clauses come in a fixed order."""
_ORDERED = ("WHERE", "GROUP", "HAVING")
_ORDER = "WHERE, GROUP BY and HAVING come once, in this order, right after FROM"
_MISPLACED = {
    **dict.fromkeys(_ORDERED, _ORDER),
    "MASTER": "MASTER comes before SELECT",
    **{word: f"{word} is a part of STANDBY and comes right after it" for word in STANDBY_PARTS},
    "ON": "ON comes right after STANDBY or STAGE, or after the sink in INTO",
    "BEST": "BEST EFFORT comes right after the duration of DEADLINE",
    "SHED": "SHED is for streams: give it to the one that brings too much",
}


def create_query(cursor: Cursor, start: Token) -> CreateQuery:
    """create query := CREATE QUERY name AS query; the first two words are passed already."""
    name = cursor.name("the name of the query")
    cursor.expect("AS")
    return query(cursor, start, name)


def query(cursor: Cursor, start: Token, name: Name) -> CreateQuery:
    """query := select {STANDBY … | APPROXIMATE … | DEADLINE … | COST … | KEEP … |
    INTO call [ON site] | AT sites | NOT AT sites | [NO] STAGE}"""
    select = _select(cursor)
    clauses = gather(cursor, _CLAUSES, _MISPLACED)
    sink, sink_site = clauses.get("INTO", (None, None))
    span = cursor.since(start)
    return CreateQuery(
        name=name.text,
        select=select,
        sink=sink,
        sink_site=sink_site,
        standby=clauses.get("STANDBY"),
        stage=clauses.get("STAGE") or clauses.get("NO"),
        deadline=clauses.get("DEADLINE"),
        cost=clauses.get("COST"),
        keep=clauses.get("KEEP"),
        approximate=clauses.get("APPROXIMATE"),
        at=clauses.get("AT", ()),
        never=clauses.get("NOT", ()),
        name_span=name.span,
        span=span,
        text=cursor.script.slice(span),
    )


def _stage(cursor: Cursor, *, wanted: bool) -> StageNode:
    """STAGE [( [option {, option}] )] [ON site {, site}] | NO STAGE, after its first word"""
    start = cursor.previous
    if not wanted:
        cursor.expect("STAGE")
    options = options_in_brackets(cursor) if wanted and cursor.at("(") else ()
    call = CallNode("STAGE", options, cursor.since(start))
    sites: list[Name] = []
    if wanted and cursor.accept("ON"):
        sites.append(cursor.name("the name of a site"))
        while cursor.accept(","):
            sites.append(cursor.name("the name of a site"))
    return StageNode(wanted, call, tuple(sites))


def _sites(cursor: Cursor) -> tuple[Name, ...]:
    """sites := name | ANY OF (name {, name})"""
    if (cursor.peek().key, cursor.peek(1).key) != ("ANY", "OF"):
        return (cursor.name("the name of a site"),)
    cursor.advance()
    cursor.advance()
    cursor.expect("(")
    names = [cursor.name("the name of a site")]
    while cursor.accept(","):
        names.append(cursor.name("the name of a site"))
    if not cursor.accept(")"):
        raise cursor.unexpected((",", ")"))
    return tuple(names)


def _not_at(cursor: Cursor) -> tuple[Name, ...]:
    """NOT AT sites; the first word is passed already."""
    cursor.expect("AT")
    return _sites(cursor)


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
    if not cursor.accept("SELECT"):
        expected = ("SELECT",) if masters else ("MASTER", "SELECT")
        raise cursor.unexpected(expected, remedy=translations.statement(cursor.peek()))
    if cursor.at("DISTINCT"):
        span = cursor.peek().span
        raise cursor.error(span, "SELECT DISTINCT is not supported", translations.DISTINCT)
    items = [_item(cursor)]
    while cursor.accept(","):
        items.append(_item(cursor))
    if not cursor.accept("FROM"):
        raise cursor.unexpected((",", "FROM"))
    sources = from_items(cursor)
    where = _condition(cursor, ("GROUP BY", "HAVING")) if cursor.accept("WHERE") else None
    group = _group(cursor) if accept_clause(cursor, "GROUP") else ()
    having = _condition(cursor) if cursor.accept("HAVING") else None
    span = cursor.since(start)
    select = Select(masters, tuple(items), sources, where, group, having, span, union(cursor))
    return checked_union(cursor, select)


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

    keys: list[Expression] = []
    while not keys or cursor.accept(","):
        tokens = take_expression(cursor, stops)
        keys.append(parse_expression(cursor, tokens, ("HAVING", *_CLAUSES)))
    return tuple(keys)


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
        if token.kind is TokenKind.WORD and ends_operand(before) and closest(token.text, ["FROM"]):
            raise cursor.unexpected((",", "FROM"), token)


def _aliased(cursor: Cursor, tokens: list[Token]) -> tuple[Expression, Name | None]:
    """Splits `expression [[AS] name]`. A name without AS is a last word that does not fit the
    expression.
    """
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
    return bool(at_clause(cursor, *_ORDERED, *_CLAUSES, "UNION") or at_unsupported(cursor))
