import pytest

from anabranch.errors import ScriptError
from anabranch.language import Script, bind_query, bind_stream, parse
from anabranch.plan.operators import Call, Column, Projection, Selection
from tests.language.fakes import FakeTyper, bind, sensor


def names(items: str) -> list[str]:
    return [
        column.name for column in bind(f"CREATE QUERY q AS SELECT {items} FROM Sensor1").columns
    ]


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


def test_a_query_selects_and_then_projects() -> None:
    query = bind(
        "CREATE QUERY hot AS SELECT s.Temp, Temp * 2 AS twice FROM sensor1 s"
        " WHERE s.Temp > 50 INTO file(path = 'x')"
    )
    assert query.operators == (
        Selection(condition="s.Temp > 50"),
        Projection(items=(("s.Temp", "Temp"), ("Temp * 2", "twice"))),
    )
    assert query.columns == (
        Column(name="Temp", type="double"),
        Column(name="twice", type="double"),
    )
    assert (query.name, query.input, query.alias, query.site) == ("hot", "Sensor1", "s", "room1")
    assert query.sink == Call(name="file", options={"path": "x"})
    assert query.base == "/base"


def test_without_condition_and_alias() -> None:
    query = bind("CREATE QUERY q AS SELECT Sensor1.Temp FROM Sensor1 AT centre")
    assert query.operators == (Projection(items=(("Sensor1.Temp", "Temp"),)),)
    assert (query.alias, query.site, query.sink) == ("Sensor1", "centre", None)


def test_a_star_is_all_columns_but_those_of_the_system() -> None:
    query = bind("CREATE QUERY q AS SELECT s.*, _ts AS t FROM Sensor1 s")
    assert query.operators == (
        Projection(
            items=(
                ("`Temp`", "Temp"),
                ("`Room`", "Room"),
                ("`xs`", "xs"),
                ("`pos`", "pos"),
                ("_ts", "t"),
            )
        ),
    )


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
        "transform(xs, x -> x + Temp)", "transform(xs, X -> x + 1)",
        "reduce(xs, 0, (a, b) -> a + b)",
        "transform(xs, x -> transform(xs, y -> x + y))", "unix_timestamp(Room)", "pos.at.floor + 1",
        "Room LIKE ANY ('a', 'b')", "DATE '2024-01-01'", "timestampdiff(MINUTE, Room, Room)",
        "extract(year FROM Room)", "struct(Temp AS user)", "transform(xs, user -> user + 1)",
        "filter(xs, x -> x > 0)", "greatest(Temp, 1)", "Temp::INT", "interval 1 day", "NULL",
    ],
)  # fmt: skip
def test_expressions_over_the_columns_alone(item: str) -> None:
    assert len(names(f"{item} AS x")) == 1


def test_the_typer_is_asked_once_for_items_and_condition() -> None:
    typer = FakeTyper()
    bind("CREATE QUERY q AS SELECT Room, Temp AS t FROM Sensor1 s WHERE Temp > 1", typer)
    [(columns, alias, expressions)] = typer.calls
    assert columns == (*sensor().columns, Column(name="_ts", type="BIGINT"))
    assert (alias, expressions) == ("s", ("Room", "Temp", "Temp > 1"))


def test_a_column_with_the_name_of_a_function_is_a_column() -> None:
    script = Script("CREATE STREAM s (user STRING) FROM f() AT x")
    [stream] = parse(script)
    definition = bind_stream(stream, script, default_site=None, base="")  # type: ignore[arg-type]
    script = Script("CREATE QUERY q AS SELECT user FROM s")
    [query] = parse(script)
    bound = bind_query(query, script, lambda _: definition, [], FakeTyper(), base="")  # type: ignore[arg-type]
    assert [column.name for column in bound.columns] == ["user"]


def test_a_stream_without_any_site() -> None:
    script = Script("CREATE STREAM s (a INT) FROM f()")
    [statement] = parse(script)
    with pytest.raises(ScriptError) as caught:
        bind_stream(statement, script, default_site=None, base="")  # type: ignore[arg-type]
    assert (
        str(caught.value) == "script:1:15: stream s needs AT site. Add AT and the name of a site."
    )
