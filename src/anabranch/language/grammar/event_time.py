"""TIMESTAMP of a stream: the field with the event time, and the unit of whole numbers in it."""

from __future__ import annotations

from anabranch.language.grammar.clauses import Open
from anabranch.language.grammar.tokens import Cursor
from anabranch.units import unit_meant

_UNITS = {"s": "s", "ms": "ms", "us": "us", "µs": "us", "ns": "ns"}
_MEANT = {"nano": "ns", "nanosecond": "ns", "nsec": "ns"}
_SYMBOLS = ("(", "/", "*", "+", "-")


def timestamp(cursor: Cursor) -> Open:
    """TIMESTAMP field [UNIT s | ms | us | ns]"""
    if cursor.at("("):
        raise _computed(cursor, "field")
    field = cursor.name("the name of a field")
    if cursor.at(*_SYMBOLS):
        raise _computed(cursor, field.text)
    if cursor.accept("UNIT"):
        return Open((field, _unit(cursor)), ())
    if unit := _known(cursor.peek().text):
        message = f"the unit of {field.text} needs the word UNIT"
        remedy = f"Write TIMESTAMP {field.text} UNIT {unit}."
        raise cursor.error(cursor.peek().span, message, remedy)
    return Open((field, None), ("UNIT",))


def _unit(cursor: Cursor) -> str:
    token = cursor.peek()
    unit = _known(token.text)
    if unit is None:
        message = f"'{token.text}' is no unit of event times"
        raise cursor.error(token.span, message, "Write UNIT s, ms, us or ns.")
    cursor.advance()
    return unit


def _known(text: str) -> str | None:
    word = text.lower()
    meant = _MEANT.get(word.removesuffix("s")) or unit_meant(word)
    return _UNITS.get(word) or (meant if meant in _UNITS.values() else None)


def _computed(cursor: Cursor, field: str) -> Exception:
    return cursor.error(
        cursor.peek().span,
        "TIMESTAMP takes a field as it is, and computes nothing",
        f"For seconds or milliseconds since 1970 write TIMESTAMP {field} UNIT s or UNIT ms.",
    )
