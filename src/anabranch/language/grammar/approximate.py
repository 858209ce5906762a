"""APPROXIMATE WITHIN e CONFIDENCE c%: what it says."""

from __future__ import annotations

import re
from decimal import Decimal

from anabranch.language.grammar.clauses import Open
from anabranch.language.grammar.lexer import Kind
from anabranch.language.grammar.statements import ApproximateNode, Name
from anabranch.language.grammar.tokens import Cursor
from anabranch.language.wording import clip

_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+")


def approximate_clause(cursor: Cursor) -> Open:
    """APPROXIMATE WITHIN e CONFIDENCE c% [FAILURES n] [ON site {, site}], after its first word"""
    start = cursor.previous
    cursor.expect("WITHIN")
    epsilon = _number(cursor, "an error such as 0.5")
    if epsilon <= 0:
        span = cursor.previous.span
        raise cursor.error(span, "an error must be above 0", "Write WITHIN 0.5.")
    cursor.expect("CONFIDENCE")
    percent = _number(cursor, "a percentage such as 95%")
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
    number = _number(cursor, "how many workers may be lost at once")
    if number != int(number) or number < 1:
        span = cursor.previous.span
        raise cursor.error(span, "workers are lost one, two or more at once", "Write FAILURES 2.")
    return int(number)


def _number(cursor: Cursor, expected: str) -> Decimal:
    token = cursor.peek()
    if token.kind is not Kind.NUMBER:
        raise cursor.unexpected((expected,))
    if not _NUMBER.fullmatch(token.text):
        raise cursor.error(token.span, f"{clip(token.text)} is no plain number")
    return Decimal(cursor.advance().text)
