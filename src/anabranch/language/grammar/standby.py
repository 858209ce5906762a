"""STANDBY: how a script asks for the protection of a query."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import cast, get_args

from anabranch.language.grammar.clauses import Clauses, Open, at_unsupported, take
from anabranch.language.grammar.lexer import Kind, Token
from anabranch.language.grammar.statements import Name, StandbyNode
from anabranch.language.grammar.tokens import Cursor
from anabranch.language.wording import clip, closest, did_you_mean_name, listed
from anabranch.plan.protection import UNLIMITED, Compression, Standby

METHODS: tuple[str, ...] = get_args(Compression)
_DEFAULT: Compression = "zstd"
_SIZE = re.compile("[0-9]{1,19}")
_PERCENT = re.compile(r"[0-9]+(?:\.[0-9]*)?")
_RANGE = "OVERHEAD takes 0% to 100%."
_OTHERS = (
    "STANDBY",
    "APPROXIMATE",
    "DEADLINE",
    "COST",
    "INTO",
    "AT",
    "NOT",
    "MASTER",
    "WHERE",
    "GROUP BY",
    "GROUP",
    "HAVING",
)
"""The query's clauses besides."""


def standby(cursor: Cursor) -> Open:
    """STANDBY {ON site | BATCH size | RECOVERY duration | OVERHEAD p% | COMPRESS [method]}"""
    start = cursor.peek()
    found = take(cursor, _PARTS)
    on: Name | None = found.get("ON")
    asked = Standby(
        on=on.text if on else None,
        batch=found.get("BATCH"),
        recovery_us=found.get("RECOVERY"),
        overhead=found.get("OVERHEAD"),
        compress=found.get("COMPRESS"),
    )
    span = cursor.since(start) if found else start.span
    return Open(StandbyNode(asked, on, span), [word for word in _PARTS if word not in found])


def _batch(cursor: Cursor) -> int:
    """size := n | UNLIMITED"""
    if cursor.accept("UNLIMITED"):
        return UNLIMITED
    text, start = _number(cursor, "a number of tuples", "UNLIMITED")
    if not _SIZE.fullmatch(text) or not 0 < int(text) < UNLIMITED:
        remedy = "BATCH takes a whole number of tuples from 1 on, or UNLIMITED."
        raise cursor.error(cursor.since(start), f"a batch cannot have {clip(text)} tuples", remedy)
    return int(text)


def _recovery(cursor: Cursor) -> int:
    found = cursor.duration()
    if found.us == 0:
        raise cursor.error(found.span, "recovery takes some time", "Give a duration above 0.")
    return found.us


def _overhead(cursor: Cursor) -> float:
    """A percentage, returned as a fraction of 1."""
    text, start = _number(cursor, "a percentage such as 30%")
    if not cursor.accept("%"):
        remedy = "Write a percentage such as 30%."
        raise cursor.error(cursor.since(start), f"the overhead of '{clip(text)}' has no %", remedy)
    span = cursor.since(start)
    if not _PERCENT.fullmatch(text):
        raise cursor.error(span, f"{clip(text)}% is no overhead", _RANGE)
    if Decimal(text) > 100:
        remedy = "At 100% every tuple is sent to the standby, as with BATCH 1."
        raise cursor.error(span, f"an overhead of {clip(text)}% is above 100%", remedy)
    return float(Decimal(text) / 100)


def _number(cursor: Cursor, *expected: str) -> tuple[str, Token]:
    """The text of a number with its sign, and where it starts."""
    start = cursor.peek()
    sign = "-" if cursor.accept("-") else ""
    if cursor.peek().kind is not Kind.NUMBER:
        raise cursor.unexpected(expected, start)
    return sign + cursor.advance().text, start


def _compress(cursor: Cursor) -> Compression:
    """[zlib | lz4 | zstd]"""
    token = cursor.peek()
    if token.text.lower() in METHODS and token.is_name:
        return cast(Compression, cursor.advance().text.lower())
    names = listed(METHODS, "or")
    if token.kind is Kind.STRING:
        raise cursor.error(token.span, "COMPRESS takes no quotes", f"Write {names}.")
    if token.is_name and not _may_follow(cursor, token):
        remedy = did_you_mean_name(token.text, METHODS) or f"Write {names}."
        raise cursor.error(token.span, f"unknown compression '{token.text}'", remedy)
    return _DEFAULT


def _may_follow(cursor: Cursor, token: Token) -> bool:
    """Whether the next `token` starts something else, even if that is misspelt."""
    words = (*_PARTS, *_OTHERS)
    misspelt = not closest(token.text, METHODS) and closest(token.text, words)
    return bool(token.key in words or at_unsupported(cursor) or misspelt)


_PARTS: Clauses = {
    "ON": lambda cursor: cursor.name("the name of a site"),
    "BATCH": _batch,
    "RECOVERY": _recovery,
    "OVERHEAD": _overhead,
    "COMPRESS": _compress,
}
STANDBY_PARTS = tuple(_PARTS)
