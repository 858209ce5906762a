"""The service that a query is to get: STANDBY, DEADLINE and COST, APPROXIMATE; and SHED of a
stream.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import cast, get_args

from anabranch.language.grammar.clauses import Clauses, Open, at_unsupported, take
from anabranch.language.grammar.expressions import ends_operand, parse_expression, take_expression
from anabranch.language.grammar.lexer import Token, TokenKind
from anabranch.language.grammar.statements import ApproximateNode, Name, ShedNode, StandbyNode
from anabranch.language.grammar.tokens import Cursor
from anabranch.language.source import clip, closest, did_you_mean_name, listed
from anabranch.plan.service_levels import UNLIMITED, Compression, CostHint, Deadline, Standby

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
    parts = take(cursor, _PARTS)
    on: Name | None = parts.get("ON")
    protection = Standby(
        on=on.text if on else None,
        batch=parts.get("BATCH"),
        recovery_us=parts.get("RECOVERY"),
        overhead=parts.get("OVERHEAD"),
        compress=parts.get("COMPRESS"),
    )
    span = cursor.since(start) if parts else start.span
    return Open(StandbyNode(protection, on, span), [word for word in _PARTS if word not in parts])


def _batch(cursor: Cursor) -> int:
    """size := n | UNLIMITED"""
    if cursor.accept("UNLIMITED"):
        return UNLIMITED
    text, start = _signed_number(cursor, "a number of tuples", "UNLIMITED")
    if not _SIZE.fullmatch(text) or not 0 < int(text) < UNLIMITED:
        remedy = "BATCH takes a whole number of tuples from 1 on, or UNLIMITED."
        raise cursor.error(cursor.since(start), f"a batch cannot have {clip(text)} tuples", remedy)
    return int(text)


def _recovery(cursor: Cursor) -> int:
    duration = cursor.duration()
    if duration.us == 0:
        raise cursor.error(duration.span, "recovery takes some time", "Give a duration above 0.")
    return duration.us


def _overhead(cursor: Cursor) -> float:
    """A percentage, returned as a fraction of 1."""
    text, start = _signed_number(cursor, "a percentage such as 30%")
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


def _signed_number(cursor: Cursor, *expected: str) -> tuple[str, Token]:
    """The text of a number with its sign, and where it starts."""
    start = cursor.peek()
    sign = "-" if cursor.accept("-") else ""
    if cursor.peek().kind is not TokenKind.NUMBER:
        raise cursor.unexpected(expected, start)
    return sign + cursor.advance().text, start


def _compress(cursor: Cursor) -> Compression:
    """[zlib | lz4 | zstd]"""
    token = cursor.peek()
    if token.text.lower() in METHODS and token.is_name:
        return cast(Compression, cursor.advance().text.lower())
    names = listed(METHODS, "or")
    if token.kind is TokenKind.STRING:
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


_WHOLE = re.compile("[0-9]{1,15}")
_RATE = "Write a rate such as 1000/s or 20/10ms."


def deadline(cursor: Cursor) -> Open:
    """DEADLINE duration [BEST EFFORT]"""
    duration = cursor.duration()
    if duration.us == 0:
        raise cursor.error(duration.span, "a deadline takes some time", "Give a duration above 0.")
    if not cursor.accept("BEST"):
        return Open(Deadline(us=duration.us), ("BEST EFFORT",))
    cursor.expect("EFFORT")
    return Open(Deadline(us=duration.us, best_effort=True), ())


def cost(cursor: Cursor) -> CostHint:
    """COST duration [PER TUPLE] [+ duration [PER TUPLE]]"""
    parts: dict[str, float] = {}
    while not parts or cursor.accept("+"):
        start = cursor.peek()
        us = cursor.duration().us
        per_tuple = cursor.accept("PER")
        if per_tuple:
            cursor.expect("TUPLE")
        name = "per_tuple_us" if per_tuple else "fixed_us"
        if name in parts:
            what = "a tuple's cost" if per_tuple else "the cost of an instance"
            remedy = "Write it like COST 3ms + 20us PER TUPLE."
            raise cursor.error(cursor.since(start), f"{what} is given twice", remedy)
        parts[name] = us
    return CostHint(**parts)


def shed(cursor: Cursor, *clauses: str) -> ShedNode:
    """SHED ABOVE n/duration KEEP BY expression; `clauses` may follow the expression."""
    start = cursor.previous
    cursor.expect("ABOVE")
    most, per_us = _rate(cursor)
    cursor.expect("KEEP")
    cursor.expect("BY")

    def stops(cursor: Cursor, before: Token | None) -> bool:
        return before is not None and ends_operand(before) and cursor.at(*clauses)

    tokens = take_expression(cursor, stops)
    keep = parse_expression(cursor, tokens, clauses)
    return ShedNode(most, per_us, keep, cursor.since(start))


def _rate(cursor: Cursor) -> tuple[int, int]:
    """n/s or n/10ms: how many tuples in how many microseconds."""
    start = cursor.peek()
    if start.kind is not TokenKind.NUMBER:
        raise cursor.unexpected(("a rate such as 1000/s",))
    text = cursor.advance().text
    if not _WHOLE.fullmatch(text) or int(text) == 0:
        message = f"{clip(text)} is no number of tuples"
        raise cursor.error(cursor.since(start), message, _RATE)
    if not cursor.accept("/"):
        raise cursor.error(cursor.since(start), f"{clip(text)} tuples need a time", _RATE)
    per = cursor.unit_or_duration()
    if per.us == 0:
        raise cursor.error(per.span, "no time is too short for any tuple", _RATE)
    return int(text), per.us


_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+")


def approximate_clause(cursor: Cursor) -> Open:
    """APPROXIMATE WITHIN e CONFIDENCE c% [FAILURES n] [ON site {, site}], after its first word"""
    start = cursor.previous
    cursor.expect("WITHIN")
    epsilon = _plain_number(cursor, "an error such as 0.5")
    if epsilon <= 0:
        span = cursor.previous.span
        raise cursor.error(span, "an error must be above 0", "Write WITHIN 0.5.")
    cursor.expect("CONFIDENCE")
    percent = _plain_number(cursor, "a percentage such as 95%")
    if not cursor.accept("%"):
        raise cursor.unexpected(("%",))
    if not 50 <= percent < 100:
        remedy = "CONFIDENCE takes 50% to below 100%."
        message = f"a confidence of {percent}% cannot be promised"
        raise cursor.error(cursor.since(start), message, remedy)
    failures = _failures(cursor) if cursor.accept("FAILURES") else 1
    sites: list[Name] = []
    if cursor.accept("ON"):
        sites.append(cursor.name("the name of a site"))
        while cursor.accept(","):
            sites.append(cursor.name("the name of a site"))
    span = cursor.since(start)
    node = ApproximateNode(float(epsilon), float(percent / 100), failures, tuple(sites), span)
    more = () if sites else ("ON",) if failures > 1 else ("FAILURES", "ON")
    return Open(node, more)


def _failures(cursor: Cursor) -> int:
    number = _plain_number(cursor, "how many workers may be lost at once")
    if number != int(number) or number < 1:
        span = cursor.previous.span
        raise cursor.error(span, "workers are lost one, two or more at once", "Write FAILURES 2.")
    return int(number)


def _plain_number(cursor: Cursor, expected: str) -> Decimal:
    token = cursor.peek()
    if token.kind is not TokenKind.NUMBER:
        raise cursor.unexpected((expected,))
    if not _NUMBER.fullmatch(token.text):
        raise cursor.error(token.span, f"{clip(token.text)} is no plain number")
    return Decimal(cursor.advance().text)
