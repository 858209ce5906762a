import pytest

from anabranch.errors import ScriptError
from anabranch.language import Script, bind_stream, parse
from anabranch.plan.catalog import HOUR_US, StreamDef, TableDef
from anabranch.plan.expressions import Expr
from anabranch.plan.operators import Call, Column, Item, Port, Projection, Selection
from tests.language.fakes import FakeTyper, bind, condition, define, expr, sensor


def names(items: str) -> list[str]:
    return [
        column.name for column in bind(f"CREATE QUERY q AS SELECT {items} FROM Sensor1").columns
    ]


def item(text: str, *columns: str, name: str, input: str = "Sensor1") -> Item:
    return Item(expr=expr(text, *columns, input=input), name=name, type="double")


def test_a_stream() -> None:
    stream = sensor()
    assert (stream.name, stream.site, stream.base) == ("Sensor1", "room1", "/data")
    assert stream.columns[:2] == (
        Column(name="Temp", type="DOUBLE"),
        Column(name="Room", type="STRING"),
    )
    assert (stream.timestamp, stream.lateness_us) == ("measured", 500_000)
    assert stream.source == Call(name="file", options={"path": "readings.csv"})
    assert stream.text.startswith("CREATE STREAM Sensor1")


def test_a_stream_without_at_is_at_the_default_site() -> None:
    script = Script("CREATE STREAM s (a INT) FROM f()")
    [statement] = parse(script)
    stream = bind_stream(statement, script, default_site="centre", base="")  # type: ignore[arg-type]
    assert (stream.site, stream.timestamp, stream.lateness_us) == ("centre", None, 0)


def test_how_far_event_times_may_be_ahead() -> None:
    text = "CREATE STREAM s (a INT) TIMESTAMP ts {} FROM file(path = 'a.csv') AT room1"
    [usual], [said] = define(text.format("")), define(text.format("AHEAD 2d LATENESS 1s"))
    assert isinstance(usual, StreamDef)
    assert isinstance(said, StreamDef)
    assert (usual.ahead_us, said.ahead_us) == (HOUR_US, 48 * HOUR_US)


def test_a_stream_that_programs_fill() -> None:
    [stream] = define("CREATE STREAM alarm (message STRING) LATENESS 1s AT room1")
    assert isinstance(stream, StreamDef)
    assert (stream.source, stream.timestamp, stream.lateness_us) == (None, None, 1_000_000)


def test_a_table() -> None:
    [table] = define("CREATE TABLE Rooms (id INT, name STRING) FROM file(path = 'r.csv') AT room1")
    assert isinstance(table, TableDef)
    assert (table.name, table.site, table.base) == ("Rooms", "room1", "/data")
    assert [column.name for column in table.columns] == ["id", "name"]
    assert table.source == Call(name="file", options={"path": "r.csv"})


def test_a_query_selects_and_then_projects() -> None:
    query = bind(
        "CREATE QUERY hot AS SELECT s.Temp, Temp * 2 AS twice FROM sensor1 s"
        " WHERE s.Temp > 50 INTO file(path = 'x')"
    )
    node = query.written
    assert node.operators == (
        Selection(condition=condition("? > 50", "s.Temp", safe=True)),
        Projection(items=(item("?", "s.Temp", name="Temp"), item("? * 2", "s.Temp", name="twice"))),
    )
    assert (
        query.columns
        == node.columns
        == (
            Column(name="Temp", type="double"),
            Column(name="twice", type="double"),
        )
    )
    assert (query.name, node.name, query.site, node.site) == ("hot", "hot", "room1", "room1")
    assert node.inputs == (Port(stream="Sensor1", alias="s"),)
    assert query.nodes == (node,)
    assert query.sink == Call(name="file", options={"path": "x"})
    assert (query.base, query.reads) == ("/base", ("Sensor1",))


def test_without_condition_and_alias() -> None:
    query = bind("CREATE QUERY q AS SELECT Sensor1.Temp FROM Sensor1 AT centre")
    assert query.written.operators == (Projection(items=(item("?", "Temp", name="Temp"),)),)
    assert query.written.inputs[0].alias == "Sensor1"
    assert (query.site, query.sink) == ("centre", None)


def test_a_star_is_all_columns_but_those_of_the_system() -> None:
    query = bind("CREATE QUERY q AS SELECT s.*, _ts AS t FROM Sensor1 s")
    [projection] = query.written.operators
    assert isinstance(projection, Projection)
    assert [one.expr for one in projection.items] == [
        Expr.of("s", name) for name in ("Temp", "Room", "xs", "pos", "_ts")
    ]
    assert [one.name for one in projection.items] == ["Temp", "Room", "xs", "pos", "t"]


def test_each_conjunct_is_a_selection() -> None:
    query = bind(
        "SELECT Temp FROM Sensor1 WHERE Temp > 1 AND (Temp < 2 OR Room = 'x') AND Temp <> 3"
    )
    assert [str(one.condition.expr) for one in query.written.operators[:-1]] == [  # type: ignore[union-attr]
        "Sensor1.Temp > 1",
        "(Sensor1.Temp < 2 OR Sensor1.Room = 'x')",
        "Sensor1.Temp <> 3",
    ]


@pytest.mark.parametrize(
    ("written", "bound"),
    [
        ("Temp", expr("?", "Temp")),
        ("sensor1 . temp", expr("?", "Temp")),
        ("pos.x", expr("?.x", "pos")),
        ("Sensor1.POS.at . floor", expr("?.at . floor", "pos")),
        ("`Temp`*2 -- a comment\n +  1", expr("?*2 + 1", "Temp")),
        ("transform(xs, temp -> temp + Temp)", expr("transform(?, temp -> temp + Temp)", "xs")),
        ("transform(xs, x -> x + Temp)", expr("transform(?, x -> x + ?)", "xs", "Temp")),
        ("xs[0]", expr("?[0]", "xs")),
        ("'Temp ? ' || Room", Expr(pieces=("'Temp ? ' || ", ""), uses=expr("?", "Room").uses)),
        (
            "struct(Temp, pos.x, Temp AS t)",
            expr("struct(? AS `Temp`, ?.x, ? AS t)", "Temp", "pos", "Temp"),
        ),
        ("named_struct('a', Temp)", expr("named_struct('a', ?)", "Temp")),
    ],
)
def test_columns_are_taken_out_of_the_text(written: str, bound: Expr) -> None:
    query = bind(f"SELECT {written} AS x FROM Sensor1")
    projection = query.written.operators[-1]
    assert isinstance(projection, Projection)
    assert projection.items[0].expr == bound


@pytest.mark.parametrize(
    ("item", "name"),
    [
        ("TEMP", "Temp"),
        ("sensor1.temp", "Temp"),
        ("`Temp`", "Temp"),
        ("pos.x", "x"),
        ("Sensor1.pos.at.floor", "floor"),
        ("Temp  /* twice */\n * 2", "Temp * 2"),
        ("xs[0]", "xs[0]"),
        ("Temp AS `°C`", "°C"),
    ],
)
def test_names_of_items(item: str, name: str) -> None:
    assert names(item) == [name]


@pytest.mark.parametrize(
    "item",
    [
        "transform(xs, x -> x + Temp)",
        "transform(xs, X -> x + 1)",
        "reduce(xs, 0, (a, b) -> a + b)",
        "transform(xs, x -> transform(xs, y -> x + y))",
        "unix_timestamp(Room)",
        "pos.at.floor + 1",
        "Room LIKE ANY ('a', 'b')",
        "DATE '2024-01-01'",
        "timestampdiff(MINUTE, Room, Room)",
        "extract(year FROM Room)",
        "struct(Temp AS user)",
        "transform(xs, user -> user + 1)",
        "filter(xs, x -> x > 0)",
        "greatest(Temp, 1)",
        "Temp::INT",
        "interval 1 day",
        "NULL",
    ],
)
def test_expressions_over_the_columns_alone(item: str) -> None:
    assert len(names(f"{item} AS x")) == 1


def test_the_typer_is_asked_once_for_items_and_conditions() -> None:
    typer = FakeTyper()
    bind("SELECT Room, s.Temp AS t FROM Sensor1 s WHERE Temp > 1 AND Room = 'x'", typer)
    [question] = typer.calls
    assert question.columns == (*sensor().columns, Column(name="_ts", type="BIGINT"))
    assert question.expressions == ("`Room`", "`Temp`", "`Temp` > 1", "`Room` = 'x'")
    assert not question.aggregate


def test_a_column_with_the_name_of_a_function_is_a_column() -> None:
    [stream] = define("CREATE STREAM s (user STRING) FROM f() AT x")
    for source in ("s", "s[1s]", "s[1s] a, s[1s] b"):
        item = "a.user" if "," in source else "user"
        bound = bind(f"CREATE QUERY q AS SELECT {item} FROM {source}", lookup=lambda _: stream)
        assert [column.name for column in bound.columns] == ["user"]


def test_a_column_that_sqlglot_takes_for_a_function() -> None:
    [stream] = define("CREATE STREAM s (current_date DATE) FROM f() AT x")
    [projection] = bind("SELECT current_date FROM s", lookup=lambda _: stream).written.operators
    assert isinstance(projection, Projection)
    assert str(projection.items[0].expr) == "current_date"
    with pytest.raises(ScriptError, match="another value each time"):
        bind("SELECT current_date FROM s[1s], s[1s] AS t", lookup=lambda _: stream)


def test_a_stream_without_any_site() -> None:
    script = Script("CREATE STREAM s (a INT) FROM f()")
    [statement] = parse(script)
    with pytest.raises(ScriptError) as caught:
        bind_stream(statement, script, default_site=None, base="")  # type: ignore[arg-type]
    assert (
        str(caught.value) == "script:1:15: stream s needs AT site. Add AT and the name of a site."
    )
