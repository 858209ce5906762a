"""Script text → statements.

A production is a function of the cursor, named after what it reads, with its rule as docstring.
Tables lead from keywords to productions, so one more statement or clause is one more line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from anabranch.language.grammar import translations
from anabranch.language.grammar.calls import call, create_secret
from anabranch.language.grammar.clauses import Clauses, gather
from anabranch.language.grammar.columns import column_type, timestamp
from anabranch.language.grammar.from_items import at_state, select_state
from anabranch.language.grammar.keep import keep
from anabranch.language.grammar.lexer import Token, TokenKind
from anabranch.language.grammar.queries import create_query, query
from anabranch.language.grammar.service_levels import shed
from anabranch.language.grammar.statements import (
    CallNode,
    ColumnDecl,
    CreateAggregate,
    CreatePocket,
    CreateQuery,
    CreateStream,
    CreateTable,
    Describe,
    Drop,
    DropKind,
    Explain,
    Name,
    Resume,
    Show,
    ShowKind,
    Statement,
    TypeNode,
)
from anabranch.language.grammar.tokens import Cursor
from anabranch.language.source import Script


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
            raise cursor.unexpected((";",), remedy=translations.clause(cursor.peek()))


def _statement(cursor: Cursor) -> Statement:
    """statement := CREATE … | DROP … | RESUME … | SHOW … | DESCRIBE … | EXPLAIN … | query"""
    start = cursor.peek()
    try:
        if cursor.at("SELECT") and at_state(cursor):
            return select_state(cursor, start)
        if cursor.at("SELECT", "MASTER"):
            return query(cursor, start, Name("", start.span))
        if not cursor.at(*_STATEMENTS):
            expected = (*_STATEMENTS, "SELECT", "MASTER")
            raise cursor.unexpected(expected, remedy=translations.statement(start))
        cursor.advance()
        return _STATEMENTS[start.key](cursor, start)
    except RecursionError:
        raise cursor.error(start.span, "this statement is nested too deeply") from None


def _create(cursor: Cursor, start: Token) -> Statement:
    """create := CREATE (STREAM | TABLE | QUERY | AGGREGATE | POCKET | SECRET) …"""
    if not cursor.at(*_CREATIONS):
        remedy = translations.creation(cursor.peek())
        raise cursor.unexpected(tuple(_CREATIONS), remedy=remedy)
    return _CREATIONS[cursor.advance().key](cursor, start)


_OF_QUERIES = {
    word: f"{word} is for queries: give it to those that read this"
    for word in ("STANDBY", "DEADLINE", "COST")
}
_STREAM_CLAUSES: Clauses = {
    "TIMESTAMP": timestamp,
    "LATENESS": lambda cursor: cursor.duration(),
    "AHEAD": lambda cursor: cursor.duration(),
    "SHED": lambda cursor: shed(cursor, *_STREAM_CLAUSES),
    "KEEP": keep,
    "FROM": lambda cursor: call(cursor, "the name of a source"),
    "AT": lambda cursor: cursor.name("the name of a site"),
}


def _create_stream(cursor: Cursor, start: Token) -> CreateStream:
    """create stream := CREATE STREAM name (column {, column}) {clause}"""
    name = cursor.name("the name of the stream")
    columns = _columns(cursor)
    clauses = gather(cursor, _STREAM_CLAUSES, _OF_QUERIES)
    site: Name | None = clauses.get("AT")
    field, unit = clauses.get("TIMESTAMP", (None, None))
    span = cursor.since(start)
    return CreateStream(
        name=name.text,
        columns=columns,
        timestamp=field,
        unit=unit,
        lateness=clauses.get("LATENESS"),
        ahead=clauses.get("AHEAD"),
        shed=clauses.get("SHED"),
        keep=clauses.get("KEEP"),
        source=clauses.get("FROM"),
        site=site.text if site else None,
        name_span=name.span,
        site_span=site.span if site else None,
        span=span,
        text=cursor.script.slice(span),
    )


_TABLE_CLAUSES: Clauses = {word: _STREAM_CLAUSES[word] for word in ("FROM", "AT")}
_NOT_OF_TABLES = _OF_QUERIES | {
    **{
        word: f"{word} is for streams; a table has no event times"
        for word in ("TIMESTAMP", "LATENESS", "AHEAD")
    },
    "SHED": "SHED is for streams; a table is read whole",
    "KEEP": "KEEP is for streams and queries; of a table every change is kept",
}


def _create_table(cursor: Cursor, start: Token) -> CreateTable:
    """create table := CREATE TABLE name (column {, column}) FROM source [AT site]"""
    name = cursor.name("the name of the table")
    columns = _columns(cursor)
    clauses = gather(cursor, _TABLE_CLAUSES, _NOT_OF_TABLES)
    if "FROM" not in clauses:
        remedy = "Say where its rows come from, as in FROM file(path = 'rooms.csv')."
        raise cursor.error(name.span, "a table needs FROM source(...)", remedy)
    site: Name | None = clauses.get("AT")
    span = cursor.since(start)
    return CreateTable(
        name=name.text,
        columns=columns,
        source=clauses["FROM"],
        site=site.text if site else None,
        name_span=name.span,
        site_span=site.span if site else None,
        span=span,
        text=cursor.script.slice(span),
    )


_AGGREGATE_CLAUSES: Clauses = {
    "RETURNS": lambda cursor: _type(cursor),
    "FROM": lambda cursor: call(cursor, "python"),
}


def _create_aggregate(cursor: Cursor, start: Token) -> CreateAggregate:
    """create aggregate := CREATE AGGREGATE name (type {, type}) RETURNS type FROM python(…)"""
    name = cursor.name("the name of the aggregate")
    cursor.expect("(")
    arguments = [_type(cursor)]
    while cursor.expect(",", ")").key == ",":
        arguments.append(_type(cursor))
    clauses = gather(cursor, _AGGREGATE_CLAUSES)
    for word, example in (("RETURNS", "DOUBLE"), ("FROM", "python(class = 'module:Class')")):
        if word not in clauses:
            message = f"an aggregate needs {word}"
            raise cursor.error(name.span, message, f"As in {word} {example}.")
    span = cursor.since(start)
    return CreateAggregate(
        name=name.text,
        arguments=tuple(arguments),
        returns=clauses["RETURNS"],
        source=clauses["FROM"],
        name_span=name.span,
        span=span,
        text=cursor.script.slice(span),
    )


_POCKET_CLAUSES: Clauses = {
    "FROM": lambda cursor: call(cursor, "python"),
    "AT": lambda cursor: cursor.name("the name of a site"),
}


def _create_pocket(cursor: Cursor, start: Token) -> CreatePocket:
    """create pocket := CREATE POCKET name FROM python(class = 'module:Class') [AT site]"""
    name = cursor.name("the name of the pocket")
    clauses = gather(cursor, _POCKET_CLAUSES, _OF_QUERIES)
    example = "FROM python(class = 'module:Class')"
    if "FROM" not in clauses:
        raise cursor.error(name.span, "a pocket needs FROM", f"As in {example}.")
    source: CallNode = clauses["FROM"]
    options = {one.name: one.value for one in source.options}
    class_ = options.get("class")
    if source.name != "python" or set(options) != {"class"} or ":" not in str(class_):
        raise cursor.error(source.span, "this is no class of a pocket", f"Write {example}.")
    span = cursor.since(start)
    return CreatePocket(
        name=name.text,
        class_=str(class_),
        source=source,
        site=clauses.get("AT"),
        name_span=name.span,
        span=span,
        text=cursor.script.slice(span),
    )


_CREATIONS: dict[str, Callable[[Cursor, Token], Statement]] = {
    "STREAM": _create_stream,
    "TABLE": _create_table,
    "QUERY": create_query,
    "AGGREGATE": _create_aggregate,
    "POCKET": _create_pocket,
    "SECRET": create_secret,
}


def _type(cursor: Cursor) -> TypeNode:
    mark = cursor.mark()
    span = column_type(cursor)
    return TypeNode(cursor.collapsed_since(mark), span)


def _columns(cursor: Cursor) -> tuple[ColumnDecl, ...]:
    cursor.expect("(")
    columns = [_column(cursor)]
    while cursor.expect(",", ")").key == ",":
        columns.append(_column(cursor))
    return tuple(columns)


def _column(cursor: Cursor) -> ColumnDecl:
    """column := name type"""
    start = cursor.peek()
    translations.reject_computed_column(cursor)
    name = cursor.name("the name of a column")
    type_ = _type(cursor)
    return ColumnDecl(name, type_.text, cursor.since(start), type_.span)


def _drop(cursor: Cursor, start: Token) -> Drop:
    """drop := DROP (STREAM | TABLE | QUERY | AGGREGATE | POCKET | SECRET) [IF EXISTS] name"""
    kind = cast(DropKind, cursor.expect(*_CREATIONS).key.lower())
    if_exists = cursor.at("IF") and cursor.peek(1).key == "EXISTS"
    if if_exists:
        cursor.advance()
        cursor.advance()
    name = cursor.name(f"the name of {'an' if kind == 'aggregate' else 'a'} {kind}")
    span = cursor.since(start)
    return Drop(kind, name.text, if_exists, name.span, span, cursor.script.slice(span))


def _resume(cursor: Cursor, start: Token) -> Resume:
    """resume := RESUME QUERY name WITHOUT position TO position"""
    cursor.expect("QUERY")
    name = cursor.name("the name of a query")
    cursor.expect("WITHOUT")
    first = _position(cursor)
    cursor.expect("TO")
    last = _position(cursor)
    span = cursor.since(start)
    return Resume(name.text, first, last, name.span, span, cursor.script.slice(span))


def _position(cursor: Cursor) -> int:
    token = cursor.peek()
    if token.kind is not TokenKind.NUMBER or not token.text.isdecimal():
        raise cursor.unexpected(("a position such as 1000",))
    return int(cursor.advance().text)


_SHOWN = ("STREAMS", "TABLES", "QUERIES", "AGGREGATES", "POCKETS", "SITES", "SECRETS")


def _show(cursor: Cursor, start: Token) -> Show:
    """show := SHOW (STREAMS | TABLES | QUERIES | AGGREGATES | POCKETS | SITES | SECRETS)"""
    what = cursor.expect(*_SHOWN).key.lower()
    span = cursor.since(start)
    return Show(cast(ShowKind, what), span, cursor.script.slice(span))


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
    "RESUME": _resume,
    "SHOW": _show,
    "DESCRIBE": _describe,
    "EXPLAIN": _explain,
}
