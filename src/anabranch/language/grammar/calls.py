"""Sources and sinks with their options, `file(path = 'a.csv', loop = TRUE, every = 10s)`, and
CREATE SECRET, a name for what options stand for.
"""

from __future__ import annotations

import math
import re
from typing import cast

from anabranch.language.grammar.lexer import Token, TokenKind
from anabranch.language.grammar.statements import (
    CallNode,
    CreateSecret,
    OptionNode,
    OptionValue,
    Origin,
)
from anabranch.language.grammar.tokens import Cursor
from anabranch.plan.spec import Secret

_INTEGER = re.compile(r"[0-9]+")
_DECIMAL = re.compile(r"[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?")
_VALUE = "a string, a number, TRUE, FALSE, a duration or secret('name')"


def call(cursor: Cursor, what: str) -> CallNode:
    """call := name ( [option {, option}] )"""
    start = cursor.peek()
    name = cursor.name(what)
    return CallNode(name.text, options_in_brackets(cursor), cursor.since(start))


def options_in_brackets(cursor: Cursor) -> tuple[OptionNode, ...]:
    """( [option {, option}] )"""
    cursor.expect("(")
    options: dict[str, OptionNode] = {}
    while not cursor.at(")"):
        option = _option(cursor)
        if option.name in options:
            raise cursor.error(option.span, f"option '{option.name}' is given twice")
        options[option.name] = option
        if not cursor.at(")"):
            cursor.expect(",", ")")
    cursor.expect(")")
    return tuple(options.values())


def _option(cursor: Cursor) -> OptionNode:
    """option := name = value"""
    start = cursor.peek()
    name = cursor.name("the name of an option")
    cursor.expect("=")
    value = _value(cursor)
    return OptionNode(name.text, value, cursor.since(start))


def _value(cursor: Cursor) -> OptionValue:
    """value := string | [-] number | TRUE | FALSE | duration | secret"""
    token = cursor.peek()
    if token.key == "SECRET" and cursor.peek(1).key == "(":
        return _secret(cursor)
    if token.kind is TokenKind.STRING:
        return string(cursor)
    if token.kind is TokenKind.NUMBER:
        return _number_or_duration(cursor)
    if cursor.accept("-"):
        return -_number(cursor)
    if cursor.accept("TRUE", "FALSE"):
        return token.key == "TRUE"
    error = cursor.unexpected((_VALUE,))
    if token.is_name:
        error.remedy = f"Put text in quotes: '{token.text}'."
    raise error


def _secret(cursor: Cursor) -> Secret:
    """secret := secret(string | name)"""
    cursor.advance()
    cursor.expect("(")
    is_text = cursor.peek().kind is TokenKind.STRING
    name = string(cursor) if is_text else cursor.name("the name of a secret").text
    cursor.expect(")")
    return Secret(name=name)


def string(cursor: Cursor) -> str:
    """Strings that touch are one with a quote in between, `'it''s'`, as in Spark."""
    token = cursor.advance()
    text = token.text
    while cursor.peek().kind is TokenKind.STRING and cursor.peek().span.start == token.span.end:
        token = cursor.advance()
        text += cursor.script.slice(token.span)[-1] + token.text
    return text


def _number_or_duration(cursor: Cursor) -> OptionValue:
    """The number or duration. A duration stays text, because the reader of the option knows that it
    is one.
    """
    if duration := cursor.accept_duration():
        return duration.text
    if _DECIMAL.fullmatch(cursor.peek().text):
        return _number(cursor)
    return cursor.duration().text


def _number(cursor: Cursor) -> int | float:
    token = cursor.peek()
    if not _DECIMAL.fullmatch(token.text) or token.kind is not TokenKind.NUMBER:
        raise cursor.unexpected(("a number",))
    cursor.advance()
    # Limits first: Python refuses to read an integer of thousands of digits.
    value = float(token.text)
    if math.isinf(value) or (_INTEGER.fullmatch(token.text) and value >= 2**63):
        raise cursor.error(token.span, f"the number {cursor.show(token)} is too large")
    return int(token.text) if _INTEGER.fullmatch(token.text) else value


_EXAMPLE = "As in FROM env('PG_PASSWORD'), FROM file('/run/secrets/pg') or AS 'the secret itself'."


def create_secret(cursor: Cursor, start: Token) -> CreateSecret:
    """create secret := CREATE SECRET name (FROM env(string) | FROM file(string) | AS string)"""
    name = cursor.name("the name of the secret")
    if not cursor.at("FROM", "AS"):
        raise cursor.unexpected(("FROM", "AS"), remedy=_EXAMPLE)
    origin: Origin = "given"
    if cursor.advance().key == "FROM":
        origin = cast(Origin, cursor.expect("ENV", "FILE").key.lower())
        cursor.expect("(")
    if cursor.peek().kind is not TokenKind.STRING:
        raise cursor.unexpected(("a string",), remedy=_EXAMPLE)
    literal = cursor.peek().span
    source = string(cursor)
    if not source.strip():
        raise cursor.error(literal, "a secret cannot be empty")
    if origin != "given":
        cursor.expect(")")
    return CreateSecret(name.text, origin, source, name.span, cursor.since(start))
