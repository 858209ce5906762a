"""Script text → statements.

A production is a function of the cursor, named after what it reads, with its rule as docstring.
Tables lead from keywords to productions, so one more statement or clause is one more line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, cast

from anabranch.language.calls import call
from anabranch.language.clauses import Clauses, gather
from anabranch.language.column_types import column_type
from anabranch.language.lexer import Token
from anabranch.language.queries import create_query, query
from anabranch.language.source import Script
from anabranch.language.statements import (
    ColumnDecl,
    CreateQuery,
    CreateStream,
    Describe,
    Drop,
    Explain,
    Name,
    Show,
    Statement,
)
from anabranch.language.tokens import Cursor


def parse(script: Script) -> list[Statement]:
    """The statements of `script`, which `;` separates. Raises ScriptError at the first mistake."""
    cursor = Cursor(script)
    statements: list[Statement] = []
    while True:
        while cursor.accept(";"):
            pass
        if cursor.at_end():
            return statements
        statements.append(_statement(cursor))
        if not cursor.at_end():
            raise cursor.unexpected((";",))


def _statement(cursor: Cursor) -> Statement:
    """statement := CREATE … | DROP … | SHOW … | DESCRIBE … | EXPLAIN …"""
    if cursor.at("SELECT", "MASTER"):
        raise cursor.error(
            cursor.peek().span,
            "a SELECT runs as a query with a name",
            "Write CREATE QUERY name AS SELECT …",
        )
    start = cursor.expect(*_STATEMENTS)
    try:
        return _STATEMENTS[start.key](cursor, start)
    except RecursionError:
        raise cursor.error(start.span, "this statement is nested too deeply") from None


def _create(cursor: Cursor, start: Token) -> Statement:
    """create := CREATE STREAM … | CREATE QUERY …"""
    if cursor.at("TABLE"):
        raise cursor.error(cursor.peek().span, "CREATE TABLE is not supported yet")
    if cursor.expect("STREAM", "QUERY").key == "QUERY":
        return create_query(cursor, start)
    return _create_stream(cursor, start)


_STREAM_CLAUSES: Clauses = {
    "TIMESTAMP": lambda cursor: cursor.name("the name of a field"),
    "LATENESS": lambda cursor: cursor.duration(),
    "FROM": lambda cursor: call(cursor, "the name of a wrapper"),
    "AT": lambda cursor: cursor.name("the name of a site"),
}


def _create_stream(cursor: Cursor, start: Token) -> CreateStream:
    """create stream := CREATE STREAM name (column {, column}) {clause}"""
    name = cursor.name("the name of the stream")
    columns = _columns(cursor)
    found = gather(cursor, _STREAM_CLAUSES)
    if "FROM" not in found:
        raise cursor.error(
            name.span,
            "a stream needs FROM wrapper(...)",
            "Say where its tuples come from, as in FROM file(path = 'readings.csv').",
        )
    site: Name | None = found.get("AT")
    span = cursor.since(start)
    return CreateStream(
        name=name.text,
        columns=columns,
        timestamp=found.get("TIMESTAMP"),
        lateness=found.get("LATENESS"),
        source=found["FROM"],
        site=site.text if site else None,
        name_span=name.span,
        site_span=site.span if site else None,
        span=span,
        text=cursor.script.slice(span),
    )


def _columns(cursor: Cursor) -> tuple[ColumnDecl, ...]:
    cursor.expect("(")
    columns = [_column(cursor)]
    while cursor.expect(",", ")").key == ",":
        columns.append(_column(cursor))
    return tuple(columns)


def _column(cursor: Cursor) -> ColumnDecl:
    """column := name type"""
    start = cursor.peek()
    name = cursor.name("the name of a column")
    mark = cursor.mark()
    type_span = column_type(cursor)
    return ColumnDecl(name, cursor.collapsed_since(mark), cursor.since(start), type_span)


def _drop(cursor: Cursor, start: Token) -> Drop:
    """drop := DROP (STREAM | QUERY) [IF EXISTS] name"""
    kind = cast(Literal["stream", "query"], cursor.expect("STREAM", "QUERY").key.lower())
    if_exists = cursor.at("IF") and cursor.peek(1).key == "EXISTS"
    if if_exists:
        cursor.advance()
        cursor.advance()
    name = cursor.name(f"the name of a {kind}")
    span = cursor.since(start)
    return Drop(kind, name.text, if_exists, name.span, span, cursor.script.slice(span))


def _show(cursor: Cursor, start: Token) -> Show:
    """show := SHOW (STREAMS | QUERIES | SITES)"""
    what = cursor.expect("STREAMS", "QUERIES", "SITES").key.lower()
    span = cursor.since(start)
    return Show(cast(Literal["streams", "queries", "sites"], what), span, cursor.script.slice(span))


def _describe(cursor: Cursor, start: Token) -> Describe:
    """describe := DESCRIBE name"""
    name = cursor.name("the name of a stream or query")
    span = cursor.since(start)
    return Describe(name.text, name.span, span, cursor.script.slice(span))


def _explain(cursor: Cursor, start: Token) -> Explain:
    """explain := EXPLAIN (CREATE QUERY … | select … | name)"""
    target = _explained(cursor)
    span = cursor.since(start)
    return Explain(target, span, cursor.script.slice(span))


def _explained(cursor: Cursor) -> CreateQuery | Name:
    start = cursor.peek()
    if cursor.accept("CREATE"):
        cursor.expect("QUERY")
        return create_query(cursor, start)
    if cursor.at("SELECT", "MASTER"):
        return query(cursor, start, Name("", start.span))
    return cursor.name("CREATE QUERY, SELECT or the name of a query")


_STATEMENTS: dict[str, Callable[[Cursor, Token], Statement]] = {
    "CREATE": _create,
    "DROP": _drop,
    "SHOW": _show,
    "DESCRIBE": _describe,
    "EXPLAIN": _explain,
}
