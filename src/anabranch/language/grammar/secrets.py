"""CREATE SECRET: gives a name to a value that options use and that is shown to nobody."""

from __future__ import annotations

from typing import cast

from anabranch.language.grammar.calls import string
from anabranch.language.grammar.lexer import Kind, Token
from anabranch.language.grammar.statements import CreateSecret, Origin
from anabranch.language.grammar.tokens import Cursor

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
    if cursor.peek().kind is not Kind.STRING:
        raise cursor.unexpected(("a string",), remedy=_EXAMPLE)
    literal = cursor.peek().span
    source = string(cursor)
    if not source.strip():
        raise cursor.error(literal, "a secret cannot be empty")
    if origin != "given":
        cursor.expect(")")
    return CreateSecret(name.text, origin, source, name.span, cursor.since(start))
