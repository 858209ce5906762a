"""SELECT … FROM STATE query: reads the results that a stage has so far."""

from __future__ import annotations

from anabranch.language.grammar.lexer import Token
from anabranch.language.grammar.statements import SelectState
from anabranch.language.grammar.tokens import Cursor


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
