"""DEADLINE and COST of a query, and SHED of a stream: the clauses about time."""

from __future__ import annotations

import re

from anabranch.language.grammar.clauses import Open
from anabranch.language.grammar.expressions import ends_operand, parse_expression, take_expression
from anabranch.language.grammar.lexer import Kind, Token
from anabranch.language.grammar.statements import ShedNode
from anabranch.language.grammar.tokens import Cursor
from anabranch.language.wording import clip
from anabranch.plan.timeliness import CostHint, Deadline

_WHOLE = re.compile("[0-9]{1,15}")
_RATE = "Write a rate such as 1000/s or 20/10ms."


def deadline(cursor: Cursor) -> Open:
    """DEADLINE duration [BEST EFFORT]"""
    found = cursor.duration()
    if found.us == 0:
        raise cursor.error(found.span, "a deadline takes some time", "Give a duration above 0.")
    if not cursor.accept("BEST"):
        return Open(Deadline(us=found.us), ("BEST EFFORT",))
    cursor.expect("EFFORT")
    return Open(Deadline(us=found.us, best_effort=True), ())


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
    if start.kind is not Kind.NUMBER:
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
