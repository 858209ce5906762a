"""The columns of a stream or table: types as Spark SQL writes them, and TIMESTAMP, the field
with the event time.
"""

from __future__ import annotations

from collections.abc import Callable

from anabranch.errors import ScriptError
from anabranch.language.grammar.clauses import Open
from anabranch.language.grammar.lexer import Token, TokenKind
from anabranch.language.grammar.tokens import Cursor
from anabranch.language.source import Span, did_you_mean_keyword
from anabranch.units import unit_meant

_PLAIN = frozenset({
    "BOOLEAN", "TINYINT", "BYTE", "SMALLINT", "SHORT", "INT", "INTEGER", "BIGINT", "LONG", "FLOAT",
    "REAL", "DOUBLE", "DATE", "TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ", "STRING", "BINARY",
})  # fmt: skip
_SIZED = {"DECIMAL": (0, 2), "DEC": (0, 2), "NUMERIC": (0, 2), "CHAR": (1, 1), "VARCHAR": (1, 1)}
"""Types with numbers in parentheses: how many there may be at least and at most."""
_ELSEWHERE = {
    "BOOL": "BOOLEAN", "TEXT": "STRING", "NVARCHAR": "STRING", "DATETIME": "TIMESTAMP",
    "INT2": "SMALLINT", "INT4": "INT", "INT8": "BIGINT", "INT16": "SMALLINT", "INT32": "INT",
    "INT64": "BIGINT", "FLOAT4": "FLOAT", "FLOAT8": "DOUBLE", "FLOAT32": "FLOAT",
    "FLOAT64": "DOUBLE", "DOUBLE PRECISION": "DOUBLE", "NUMBER": "DECIMAL", "BYTES": "BINARY",
    "BLOB": "BINARY", "TIMESTAMPTZ": "TIMESTAMP",
}  # fmt: skip
"""What other databases call a type of Spark's."""
_OBJECTS = frozenset({"JSON", "JSONB", "OBJECT", "ROW", "VARIANT", "HSTORE"})
_NESTED_TYPES = (
    "An object is a STRUCT<name: type, …> or a MAP<STRING, type>, a list an ARRAY<type>; a text"
    " with JSON in it is a STRING, for get_json_object()."
)


def column_type(cursor: Cursor) -> Span:
    """type := word | word(n, …) | ARRAY<type> | MAP<type, type> | STRUCT<name[:] type, …>"""
    start = cursor.peek()
    if start.kind is not TokenKind.WORD:
        raise cursor.unexpected(("a type such as DOUBLE",))
    if nested := _NESTED.get(start.key):
        cursor.advance()
        cursor.expect("<")
        nested(cursor)
        cursor.expect(">")
    elif start.key in _SIZED:
        cursor.advance()
        _sizes(cursor, start)
    elif start.key in _PLAIN:
        cursor.advance()
        _no_sizes(cursor, start)
    else:
        raise _unknown(cursor, start)
    return cursor.since(start)


def _array(cursor: Cursor) -> None:
    column_type(cursor)


def _map(cursor: Cursor) -> None:
    column_type(cursor)
    cursor.expect(",")
    column_type(cursor)


def _struct(cursor: Cursor) -> None:
    while True:
        cursor.name("the name of a field")
        cursor.accept(":")
        column_type(cursor)
        if not cursor.accept(","):
            return


_NESTED: dict[str, Callable[[Cursor], None]] = {"ARRAY": _array, "MAP": _map, "STRUCT": _struct}


def _sizes(cursor: Cursor, type_: Token) -> None:
    least, most = _SIZED[type_.key]
    sizes = 0
    if cursor.accept("("):
        sizes = 1
        _size(cursor)
        while cursor.accept(","):
            _size(cursor)
            sizes += 1
        cursor.expect(")")
    if not least <= sizes <= most:
        example = "VARCHAR(20)" if least else "DECIMAL(10, 2)"
        message = f"{type_.key} takes {'one number' if most == 1 else 'at most two numbers'}"
        raise cursor.error(cursor.since(type_), message, f"Write it like {example}.")


def _no_sizes(cursor: Cursor, type_: Token) -> None:
    if cursor.at("("):
        exact = ": it holds microseconds" if type_.key.startswith("TIMESTAMP") else ""
        message = f"{type_.key} takes no number in brackets"
        raise cursor.error(cursor.peek().span, message, f"Write {type_.key}{exact}.")


def _size(cursor: Cursor) -> None:
    if not (cursor.peek().text.isascii() and cursor.peek().text.isdigit()):
        raise cursor.unexpected(("a whole number",))
    cursor.advance()


def _unknown(cursor: Cursor, token: Token) -> ScriptError:
    known = _ELSEWHERE.get(token.key)
    if token.key in _OBJECTS:
        remedy = _NESTED_TYPES
    elif known:
        remedy = f"Use {known}."
    else:
        remedy = did_you_mean_keyword(token.text, [*_PLAIN, *_SIZED, *_NESTED])
    return cursor.error(token.span, f"unknown type {cursor.show(token)}", remedy)


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
