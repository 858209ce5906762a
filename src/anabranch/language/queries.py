"""CREATE QUERY and the SELECT in it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NoReturn

from anabranch.language.calls import call
from anabranch.language.clauses import JOINS, Clauses, at_unsupported, gather, reject_unsupported
from anabranch.language.expressions import (
    ends_operand,
    is_expression,
    outside_brackets,
    parse_expression,
    take_expression,
)
from anabranch.language.lexer import Kind, Token
from anabranch.language.statements import (
    CreateQuery,
    Expression,
    FromItem,
    Name,
    Select,
    SelectItem,
    StarItem,
)
from anabranch.language.tokens import Cursor
from anabranch.language.wording import closest

_CLAUSES: Clauses = {
    "INTO": lambda cursor: call(cursor, "the name of a sink"),
    "AT": lambda cursor: cursor.name("the name of a site"),
}
"""What may follow a SELECT, whose own clauses come in a fixed order."""
_AFTER_FROM = ("WHERE", *_CLAUSES)


def create_query(cursor: Cursor, start: Token) -> CreateQuery:
    """create query := CREATE QUERY name AS query; the first two words are passed already."""
    name = cursor.name("the name of the query")
    cursor.expect("AS")
    return query(cursor, start, name)


def query(cursor: Cursor, start: Token, name: Name) -> CreateQuery:
    """query := select {INTO call | AT site}"""
    select = _select(cursor)
    found = gather(cursor, _CLAUSES, {"WHERE": "WHERE comes once, right after FROM"})
    site: Name | None = found.get("AT")
    span = cursor.since(start)
    return CreateQuery(
        name=name.text,
        select=select,
        sink=found.get("INTO"),
        site=site.text if site else None,
        name_span=name.span,
        site_span=site.span if site else None,
        span=span,
        text=cursor.script.slice(span),
    )


def _select(cursor: Cursor) -> Select:
    """select := SELECT item {, item} FROM source [WHERE expression]"""
    if cursor.at("MASTER"):
        reject_unsupported(cursor)
    start = cursor.expect("SELECT")
    if cursor.at("DISTINCT"):
        raise cursor.error(cursor.peek().span, "SELECT DISTINCT is not supported")
    items = [_item(cursor)]
    while cursor.accept(","):
        items.append(_item(cursor))
    if not cursor.accept("FROM"):
        raise cursor.unexpected((",", "FROM"))
    source = _source(cursor)
    where = _condition(cursor) if cursor.accept("WHERE") else None
    return Select(tuple(items), (source,), where, cursor.since(start))


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
    return cursor.at("WHERE") or _condition_stops(cursor, before)


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


def _source(cursor: Cursor) -> FromItem:
    """source := name [[AS] alias]"""
    start = cursor.peek()
    if cursor.at("("):
        raise cursor.error(
            start.span, "subqueries are not supported", "Make it a query of its own."
        )
    name = cursor.name("the name of a stream")
    alias = None
    if cursor.accept("AS"):
        alias = cursor.name("an alias")
    elif cursor.peek().is_name and not _starts_clause(cursor):
        _reject_misspelt_clause(cursor)
        alias = cursor.name("an alias")
    if not cursor.at_end() and not cursor.at(*_AFTER_FROM):
        _reject_after_source(cursor)
    return FromItem(name, alias, cursor.since(start))


def _reject_after_source(cursor: Cursor) -> NoReturn:
    span = cursor.peek().span
    if cursor.at(","):
        message = "several streams in FROM are not supported yet"
        raise cursor.error(span, message, "Name one stream.")
    if cursor.at("["):
        raise cursor.error(span, "windows are not supported yet", "Name the stream alone.")
    reject_unsupported(cursor)
    raise cursor.unexpected((*_AFTER_FROM, ";"))


def _starts_clause(cursor: Cursor) -> bool:
    return cursor.at(*_AFTER_FROM, *JOINS) or at_unsupported(cursor) is not None


def _reject_misspelt_clause(cursor: Cursor) -> None:
    """A word that looks like a keyword and has more after it than an alias can is a misspelling."""
    after = cursor.peek(1)
    follows = (*_AFTER_FROM, ",", "[", ";", "")
    word = cursor.peek()
    if word.kind is Kind.WORD and after.key not in follows and closest(word.text, _AFTER_FROM):
        raise cursor.unexpected((*_AFTER_FROM, ";"))


def _condition(cursor: Cursor) -> Expression:
    return parse_expression(cursor, take_expression(cursor, _condition_stops), tuple(_CLAUSES))


def _condition_stops(cursor: Cursor, before: Token | None) -> bool:
    if before is None or not ends_operand(before):
        return cursor.at("INTO", "WHERE")
    return cursor.at("WHERE", *_CLAUSES) or (
        at_unsupported(cursor) is not None and not cursor.at(*JOINS)
    )
