"""Queries over several inputs, and over windows."""

from __future__ import annotations

import pytest

from anabranch.plan.catalog import QueryDef
from anabranch.plan.expressions import Expr, Use
from anabranch.plan.operators import Condition, Join, Port, Projection
from anabranch.plan.windows import Range, Rows, TableWindow, Window
from tests.language.fakes import FakeTyper, bind

FIGURE_5 = (
    "MASTER\tSensor1\n"
    "SELECT\tSensor1.Temp, Sensor2.Temp, Sensor3.Temp\n"
    "FROM\tSensor1[1s], Sensor2[1s], Sensor3[1s]\n"
    "WHERE\tSensor1.Temp > 50 AND Sensor2.Temp > 50 AND Sensor3.Temp > 50\n"
)


def join(query: QueryDef) -> Join:
    first = query.written.operators[0]
    assert isinstance(first, Join)
    return first


def names(query: QueryDef) -> list[str]:
    return [column.name for column in query.columns]


@pytest.mark.parametrize("head", ["", "CREATE QUERY fire AS\n"])
def test_the_query_of_the_placement_paper(head: str) -> None:
    query = bind(head + FIGURE_5)
    assert query.written.inputs == tuple(
        Port(stream=name, alias=name) for name in ("Sensor1", "Sensor2", "Sensor3")
    )
    first, projection = query.written.operators
    second = Range(width_us=1_000_000)
    assert first == Join(
        windows=(second, second, second),
        masters=(0,),
        conditions=tuple(
            Condition(
                expr=Expr(pieces=("", " > 50"), uses=(Use(input=name, column="Temp"),)), safe=True
            )
            for name in ("Sensor1", "Sensor2", "Sensor3")
        ),
        order=tuple(Use(input=name, column="_pos") for name in ("Sensor1", "Sensor2", "Sensor3")),
    )
    assert isinstance(projection, Projection)
    assert [item.expr for item in projection.items] == [
        Expr.of(name, "Temp") for name in ("Sensor1", "Sensor2", "Sensor3")
    ]
    assert names(query) == ["Sensor1_Temp", "Sensor2_Temp", "Sensor3_Temp"]
    assert query.site == "room1"


@pytest.mark.parametrize(
    ("written", "window"),
    [
        ("[10s]", Range(width_us=10_000_000)),
        ("[ 250 ms ]", Range(width_us=250_000)),
        ("[3 ROWS]", Rows(count=3)),
        ("[1 row]", Rows(count=1)),
    ],
)
def test_windows(written: str, window: Window) -> None:
    found = join(bind(f"SELECT Temp FROM Sensor1{written} s"))
    assert (found.windows, found.masters) == ((window,), (0,))


def test_a_table_has_no_window_and_is_no_master() -> None:
    query = bind("SELECT name, _ts AS t FROM Rooms AS r, Sensor2[5 ROWS] WHERE r.id = n")
    assert join(query).windows == (TableWindow(), Rows(count=5))
    assert join(query).masters == (1,)
    assert [use.input for use in join(query).order] == ["r", "Sensor2"]
    assert query.site == "room2"
    assert query.reads == ("Rooms", "Sensor2")


def test_masters_by_alias_or_name_in_the_order_of_master() -> None:
    query = bind("MASTER sensor3, B SELECT b.n FROM Sensor1[1s], Sensor2[1s] b, Sensor3[1s]")
    assert join(query).masters == (2, 1)


def test_without_master_every_stream_is_one() -> None:
    assert join(bind("SELECT n FROM Sensor1[1s], Rooms, Sensor2[1s]")).masters == (0, 2)


def test_the_master_of_a_plain_selection_is_its_stream() -> None:
    assert (
        bind("MASTER Sensor1 SELECT Temp FROM Sensor1").written
        == bind("SELECT Temp FROM Sensor1").written
    )


def test_a_stream_may_be_read_twice() -> None:
    query = bind("SELECT a.Temp AS x, b.Temp AS y FROM Sensor1[1s] a, Sensor1[2s] b")
    assert [port.alias for port in query.written.inputs] == ["a", "b"]
    assert query.reads == ("Sensor1",)


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ("a.Temp, b.Temp, n", ["a_Temp", "b_Temp", "n"]),
        ("a.Temp, b.Temp AS t", ["Temp", "t"]),
        ("a.Temp, b.n", ["Temp", "n"]),
        ("a.temp, a.Temp AS again, b.TEMP", ["a_Temp", "again", "b_Temp"]),
        ("b.*", ["Temp", "Room", "n"]),
        ("b.*, a.Temp", ["b_Temp", "Room", "n", "a_Temp"]),
        ("*", ["a_Temp", "a_Room", "xs", "pos", "b_Temp", "b_Room", "n"]),
        ("a._ts AS t, b._ts AS u", ["t", "u"]),
        ("a.Temp + b.Temp", ["a.Temp + b.Temp"]),
    ],
)
def test_names_of_columns(items: str, expected: list[str]) -> None:
    assert names(bind(f"SELECT {items} FROM Sensor1[1s] a, Sensor2[1s] b")) == expected


def test_unqualified_names_that_one_input_has() -> None:
    query = bind("SELECT n + xs[0] AS x FROM Sensor1[1s] a, Sensor2[1s] b")
    projection = query.written.operators[-1]
    assert isinstance(projection, Projection)
    assert str(projection.items[0].expr) == "b.n + a.xs[0]"


def test_types_are_asked_with_flat_names() -> None:
    typer = FakeTyper()
    query = bind("SELECT n FROM Sensor3[1s] a, Rooms WHERE name LIKE 'x%' AND a.n = id", typer)
    [question] = typer.calls
    assert [(column.name, column.type) for column in question.columns] == [
        ("a.Temp", "DOUBLE"),
        ("a.n", "BIGINT"),
        ("a._ts", "BIGINT"),
        ("Rooms.id", "INT"),
        ("Rooms.name", "STRING"),
    ]
    asked = ("`a.n`", "`Rooms.name` LIKE 'x%'", "`a.n` = `Rooms.id`", "`a.n`", "`Rooms.id`")
    assert question.expressions == asked
    assert query.columns[0].type == "bigint"


def test_one_input_has_plain_names_even_with_a_window() -> None:
    typer = FakeTyper()
    bind("SELECT s.Temp FROM Sensor1[1s] s", typer)
    assert typer.calls[0].expressions == ("`Temp`",)


@pytest.mark.parametrize(
    ("condition", "equal"),
    [
        ("a.Room = b.Room", ("a.Room", "b.Room")),
        ("b.temp == a.temp", ("b.Temp", "a.Temp")),
        ("a.Temp = b.n", None),
        ("a.Temp = a.Temp", None),
        ("a.Temp + 0 = b.Temp", None),
        ("a.Room <=> b.Room", None),
        ("a.pos.x = b.n", None),
        ("a.Room = 'x'", None),
        ("NOT a.Room = b.Room", None),
    ],
)
def test_equalities(condition: str, equal: tuple[str, str] | None) -> None:
    query = bind(f"SELECT b.n FROM Sensor1[1s] a, Sensor2[1s] b WHERE {condition}")
    [found] = join(query).conditions
    assert equal == (tuple(f"{u.input}.{u.column}" for u in found.equal) if found.equal else None)


@pytest.mark.parametrize(
    ("condition", "sides"),
    [
        ("a.Temp + 0 = b.Temp", ("a.Temp + 0", "b.Temp")),
        ("(abs(b.Temp - 1) == a.Temp * 2)", ("abs(b.Temp - 1)", "a.Temp * 2")),
        ("CASE a.Temp WHEN 1 THEN 2 END = b.Temp", ("CASE a.Temp WHEN 1 THEN 2 END", "b.Temp")),
        ("a.n = c.n", ("CAST(a.n AS BIGINT)", "CAST(c.n AS BIGINT)")),
        ("a.Room = b.Room", None),
        ("a.Temp + b.Temp = c.Temp", None),
        ("a.Temp + 1 = a.Temp", None),
        ("a.Temp + 1 = 5", None),
        ("a.Temp + 1 = c.n", None),
        ("a.Temp + 1 <=> b.Temp", None),
        ("NOT a.Temp + 1 = b.Temp", None),
        ("a.Temp = 1 OR a.Temp + 1 = b.Temp", None),
    ],
)
def test_equalities_of_expressions(condition: str, sides: tuple[str, str] | None) -> None:
    text = f"SELECT b.n FROM Sensor2[1s] a, Sensor2[1s] b, Sensor3[1s] c WHERE {condition}"
    [found] = join(bind(text)).conditions
    computed = found.computed and tuple(map(str, found.computed.sides))
    assert computed == sides
    assert bool(found.indexed) == bool(sides or found.equal)


def test_what_is_looked_up_by_its_type() -> None:
    [found] = join(bind("SELECT a.n FROM Sensor2[1s] a, Rooms WHERE a.n = id")).conditions
    assert (found.equal, found.computed, found.indexed) == (
        (Use(input="a", column="n"), Use(input="Rooms", column="id")),
        None,
        ("a", "Rooms"),
    )
    text = "SELECT a.Room FROM Sensor1[1s] a, Sensor1[1s] b WHERE a.xs = b.xs"
    [found] = join(bind(text)).conditions
    assert found.indexed is None
