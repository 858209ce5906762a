from typing import Any

import pytest

from anabranch.errors import ScriptError
from anabranch.language import (
    CreateQuery,
    CreateStream,
    Describe,
    Drop,
    Explain,
    Name,
    Script,
    Show,
    Statement,
    parse,
)
from anabranch.language.grammar.statements import CallNode, SelectItem, StarItem


def one(text: str) -> Any:
    [statement] = parse(Script(text))
    return statement


def select(items: str, rest: str = "") -> CreateQuery:
    statement = one(f"CREATE QUERY q AS SELECT {items} FROM s {rest}")
    assert isinstance(statement, CreateQuery)
    return statement


def aliased(query: CreateQuery) -> list[tuple[str, str | None]]:
    return [
        (item.expression.sql, item.alias.text if item.alias else None)
        for item in query.select.items
        if isinstance(item, SelectItem)
    ]


def test_a_stream_with_every_clause() -> None:
    stream = one(
        "create stream Sensor1 (Temp DOUBLE, ts TIMESTAMP) TIMESTAMP ts LATENESS 500ms"
        " FROM kafka(topic = 'room1') AT room1"
    )
    assert isinstance(stream, CreateStream)
    assert stream.name == "Sensor1"
    assert [(column.name.text, column.type) for column in stream.columns] == [
        ("Temp", "DOUBLE"),
        ("ts", "TIMESTAMP"),
    ]
    assert stream.timestamp
    assert stream.timestamp.text == "ts"
    assert stream.lateness
    assert stream.lateness.us == 500_000
    assert stream.source
    assert (stream.source.name, stream.source.values) == ("kafka", {"topic": "room1"})
    assert stream.site == "room1"


def test_the_clauses_of_a_stream_come_in_any_order() -> None:
    head = "CREATE STREAM s (a INT) "
    assert one(head + "AT x FROM f() LATENESS 1s TIMESTAMP t") == one(
        head + "TIMESTAMP t LATENESS 1s FROM f() AT x"
    )


@pytest.mark.parametrize(
    "type_",
    [
        "INT",
        "decimal",
        "DECIMAL(10)",
        "DECIMAL(10,2)",
        "VARCHAR(20)",
        "ARRAY<INT>",
        "MAP<STRING, ARRAY<INT>>",
        "STRUCT<a: INT, b STRING>",
        "TIMESTAMP_NTZ",
        "ARRAY<STRUCT<`x y`: MAP<INT, DATE>>>",
    ],
)
def test_types_keep_their_text(type_: str) -> None:
    stream = one(f"CREATE STREAM s (a {type_}, b INT) FROM f()")
    assert [column.type for column in stream.columns] == [type_, "INT"]


def test_types_lose_comments_and_line_breaks() -> None:
    stream = one("CREATE STREAM s (a STRUCT<x: INT, -- first\n   y: INT>) FROM f()")
    assert stream.columns[0].type == "STRUCT<x: INT, y: INT>"


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("'a b'", "a b"),
        ("'it''s'", "it's"),
        ('"x"', "x"),
        (r"'a\'b'", "a'b"),
        ("7", 7),
        ("-7", -7),
        ("1.5", 1.5),
        ("-1e3", -1000.0),
        ("TRUE", True),
        ("false", False),
        ("10s", "10s"),
        ("500ms", "500ms"),
        ("1.5s", "1.5s"),
        ("10 min", "10min"),
    ],
)
def test_option_values(written: str, value: object) -> None:
    stream = one(f"CREATE STREAM s (a INT) FROM f(x = {written}, y = 1)")
    assert stream.source.values == {"x": value, "y": 1}
    assert type(stream.source.values["x"]) is type(value)


def test_a_query_with_every_clause() -> None:
    query = one(
        "CREATE QUERY hot AS SELECT Temp FROM Sensor1 s WHERE s.Temp > 50"
        " INTO file(path = 'x') AT r"
    )
    assert isinstance(query, CreateQuery)
    assert query.name == "hot"
    [source] = query.select.sources
    assert source.alias
    assert (source.name.text, source.alias.text) == ("Sensor1", "s")
    assert query.select.where
    assert query.select.where.sql == "s.Temp > 50"
    assert isinstance(query.sink, CallNode)
    assert (query.sink.name, query.sink.values, query.at[0].text) == ("file", {"path": "x"}, "r")


def test_a_query_with_every_clause_of_a_join() -> None:
    query = one(
        "CREATE QUERY q AS MASTER a, `b c` SELECT x FROM s[1s] AS a, t[10 ROWS] `b c`, u"
        " WHERE a.x > 1 INTO f() AT r"
    )
    assert [name.text for name in query.select.masters] == ["a", "b c"]
    first, second, third = query.select.sources
    assert first.window.width.us == 1_000_000
    assert (second.window.width.rows, second.window.slide, second.alias.text) == (10, None, "b c")
    assert (third.name.text, third.window, third.alias) == ("u", None, None)
    assert (query.select.where.sql, query.at[0].text) == ("a.x > 1", "r")


def test_a_query_with_every_clause_of_an_aggregate() -> None:
    query = one(
        "CREATE QUERY q AS SELECT room, avg(x) AS t FROM s[30m SLIDE 10 min] a WHERE x > 1"
        " GROUP BY room, f(x, y) HAVING avg(x) > 1 AND count(*) > 2 AT r INTO f()"
    )
    select = query.select
    [source] = select.sources
    assert (source.window.width.us, source.window.slide.us) == (1_800_000_000, 600_000_000)
    assert [expression.sql for expression in select.group] == ["room", "f(x, y)"]
    assert select.having.sql == "avg(x) > 1 AND count(*) > 2"
    assert (query.at[0].text, query.sink.name) == ("r", "f")


@pytest.mark.parametrize("text", ["SELECT a FROM s", "MASTER s SELECT a FROM s[1s] INTO f()"])
def test_a_query_alone_is_a_statement_without_a_name(text: str) -> None:
    bare = one(text)
    assert isinstance(bare, CreateQuery)
    assert bare.name == ""
    assert bare.select == one(f"CREATE QUERY q AS {text}").select
    assert bare.text == text


def test_a_stream_that_programs_fill() -> None:
    stream = one("CREATE STREAM alarm (message STRING) LATENESS 1s AT room1")
    assert (stream.source, stream.site) == (None, "room1")


def test_a_table() -> None:
    table = one("CREATE TABLE Rooms (id INT, name STRING) AT centre FROM f(path = 'x')")
    assert (table.name, table.site, table.source.values) == ("Rooms", "centre", {"path": "x"})
    assert [(column.name.text, column.type) for column in table.columns] == [
        ("id", "INT"),
        ("name", "STRING"),
    ]


def test_an_aggregate() -> None:
    aggregate = one(
        "CREATE AGGREGATE p90 (DOUBLE, ARRAY<INT>) FROM python(class = 'm:C') RETURNS DECIMAL(10,2)"
    )
    assert [type_.text for type_ in aggregate.arguments] == ["DOUBLE", "ARRAY<INT>"]
    assert (aggregate.name, aggregate.returns.text) == ("p90", "DECIMAL(10,2)")
    assert aggregate.source.values == {"class": "m:C"}


def test_into_and_at_come_in_either_order() -> None:
    assert select("a", "INTO f() AT x") == select("a", "AT x INTO f()")


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ("Temp", [("Temp", None)]),
        ("Temp t", [("Temp", "t")]),
        ("Temp AS t, b", [("Temp", "t"), ("b", None)]),
        ("a + 1 b", [("a + 1", "b")]),
        ("f(a, b) AS `my name`", [("f(a, b)", "my name")]),
        ("CASE WHEN a THEN b END", [("CASE WHEN a THEN b END", None)]),
        ("CASE WHEN a THEN b END c", [("CASE WHEN a THEN b END", "c")]),
        ("interval 1 day", [("interval 1 day", None)]),
        ("interval 1 day d", [("interval 1 day", "d")]),
        ("a IS NULL", [("a IS NULL", None)]),
        ("a IS DISTINCT FROM b c", [("a IS DISTINCT FROM b", "c")]),
        ("extract(year FROM a)", [("extract(year FROM a)", None)]),
        ("CAST(a AS DECIMAL(3,1)) x", [("CAST(a AS DECIMAL(3,1))", "x")]),
        ("struct(a AS x)", [("struct(a AS x)", None)]),
        ("date d, timestamp t, year y", [("date", "d"), ("timestamp", "t"), ("year", "y")]),
        ("transform(xs, x -> x + 1) ys", [("transform(xs, x -> x + 1)", "ys")]),
        ("deadline, at AS standby", [("deadline", None), ("at", "standby")]),
    ],
)
def test_items_and_their_names(items: str, expected: list[tuple[str, str | None]]) -> None:
    assert aliased(select(items)) == expected


def test_stars() -> None:
    query = select("*, s.*, a")
    first, second, _ = query.select.items
    assert isinstance(first, StarItem)
    assert isinstance(second, StarItem)
    assert first.qualifier is None
    assert second.qualifier
    assert second.qualifier.text == "s"


@pytest.mark.parametrize(
    "condition",
    [
        "at > 3",
        "a > deadline",
        "a > master",
        "group > 1",
        "standby",
        "NOT approximate",
        "a AND at",
        "s.limit = 1",
        "f(at, master)",
    ],
)
def test_words_of_clauses_are_columns_where_an_operand_is_due(condition: str) -> None:
    query = select("a", f"WHERE {condition} AT site1")
    assert query.select.where
    assert (query.select.where.sql, query.at[0].text) == (condition, "site1")


def test_an_expression_keeps_its_text_and_knows_its_columns() -> None:
    query = select("a", "WHERE  a.b  /* c */ > `x y`\n + transform(xs, X -> x + z)[0]")
    where = query.select.where
    assert where
    assert where.sql == "a.b  /* c */ > `x y`\n + transform(xs, X -> x + z)[0]"
    assert [[part.text for part in ref.parts] for ref in where.columns] == [
        ["a", "b"],
        ["x y"],
        ["xs"],
        ["z"],
    ]


def test_a_stream_may_be_called_by_any_word() -> None:
    assert one("DROP STREAM Temp").name == "Temp"
    assert one("DROP STREAM `select`").name == "select"
    assert one("DROP STREAM if").name == "if"
    resumed = one("resume query `a b` without 981 to 1000;")
    assert (resumed.name, resumed.first, resumed.last) == ("a b", 981, 1000)


def test_small_statements() -> None:
    statements = parse(
        Script(
            "DROP STREAM a; drop query b;; DROP QUERY IF EXISTS c; DROP TABLE t;"
            " DROP AGGREGATE IF EXISTS g; SHOW STREAMS; SHOW TABLES; SHOW QUERIES;"
            " SHOW AGGREGATES; show sites; DESCRIBE d; EXPLAIN e"
        )
    )
    shapes: list[Any] = [_shape(statement) for statement in statements]
    assert shapes == [
        ("stream", "a", False),
        ("query", "b", False),
        ("query", "c", True),
        ("table", "t", False),
        ("aggregate", "g", True),
        "streams",
        "tables",
        "queries",
        "aggregates",
        "sites",
        "d",
        "e",
    ]


def _shape(statement: Statement) -> Any:
    match statement:
        case Drop():
            return statement.kind, statement.name, statement.if_exists
        case Show():
            return statement.what
        case Describe():
            return statement.name
        case Explain(target=Name() as name):
            return name.text
    raise AssertionError(statement)


def test_explain_a_query_that_need_not_exist() -> None:
    named = one("EXPLAIN CREATE QUERY q AS SELECT a FROM s AT x")
    bare = one("EXPLAIN SELECT a FROM s AT x")
    assert named.target == one("CREATE QUERY q AS SELECT a FROM s AT x")
    assert (bare.target.name, bare.target.at[0].text) == ("", "x")
    assert bare.target.select == named.target.select


def test_nothing_is_no_statements() -> None:
    assert parse(Script("")) == parse(Script(" ;; -- nothing\n;")) == []


def test_statements_carry_their_text_and_the_places_of_their_names() -> None:
    script = Script("SHOW SITES; -- then\nCREATE QUERY q AS SELECT a FROM s AT x ;")
    show, query = parse(script)
    assert (show.text, query.text) == ("SHOW SITES", "CREATE QUERY q AS SELECT a FROM s AT x")
    assert isinstance(query, CreateQuery)
    assert (script.slice(query.name_span), script.slice(query.at[0].span)) == ("q", "x")
    assert script.place(query.name_span) == "script:2:14"


def test_a_huge_statement_is_refused_by_its_size_and_at_once() -> None:
    columns = ", ".join(f"column_{n} DOUBLE" for n in range(45_000))
    with pytest.raises(ScriptError) as caught:
        parse(Script(f"SHOW SITES;\nCREATE STREAM s ({columns}) FROM f()"))
    assert caught.value.line().startswith(
        "script:2:1: this statement has 135,008 words and signs, and may have 20,000. Declare"
    )
    assert len(caught.value.excerpt) < 1000


def test_a_huge_script_is_refused_by_its_size() -> None:
    with pytest.raises(ScriptError, match="has 5,000,000 characters, and may have 4,000,000"):
        parse(Script("SHOW " * 1_000_000))


def test_a_statement_of_many_columns() -> None:
    columns = ", ".join(f"column_{n} DOUBLE" for n in range(4_000))
    (statement,) = parse(Script(f"CREATE STREAM s ({columns}) FROM f()"))
    assert isinstance(statement, CreateStream)
    assert len(statement.columns) == 4_000
