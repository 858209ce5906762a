"""Window aggregates: what the binder makes of them."""

from __future__ import annotations

import pytest

from anabranch.errors import ScriptError
from anabranch.language import TypeAnswer
from anabranch.plan.catalog import QueryDef
from anabranch.plan.expressions import Expr, Use
from anabranch.plan.operators import (
    Aggregate,
    AggregateCall,
    Call,
    Item,
    Projection,
    Selection,
)
from anabranch.plan.windows import Panes, RowPanes, TimePanes
from tests.language.fakes import FakeTyper, bind, condition, define, expr

MINUTE = 60_000_000


def aggregate(query: QueryDef) -> Aggregate:
    [found] = [one for one in query.written.operators if isinstance(one, Aggregate)]
    return found


def items(query: QueryDef) -> list[tuple[str, str]]:
    last = query.written.operators[-1]
    assert isinstance(last, Projection)
    return [(str(item.expr), item.name) for item in last.items]


def test_a_query_with_every_clause() -> None:
    query = bind(
        "CREATE QUERY means AS SELECT Room, AVG(Temp) AS t, window_start FROM"
        " Sensor1[30m SLIDE 10m] s WHERE Temp > 0 AND Room = 'x' GROUP BY s.Room"
        " HAVING count(*) > 3 AND avg(s.temp) < 50"
    )
    assert query.written.operators == (
        Selection(condition=condition("? > 0", "s.Temp", safe=True)),
        Selection(condition=condition("? = 'x'", "s.Room", safe=True)),
        Aggregate(
            panes=TimePanes(width_us=30 * MINUTE, slide_us=10 * MINUTE),
            keys=(Item(expr=Expr.of("s", "Room"), name="Room", type="string"),),
            calls=(
                AggregateCall(
                    function="AVG", arguments=(Expr.of("s", "Temp"),), name="_agg0", type="double"
                ),
                AggregateCall(function="COUNT", name="_agg1", type="bigint"),
            ),
        ),
        Selection(condition=condition("? > 3", "_agg1", input="")),
        Selection(condition=condition("? < 50", "_agg0", input="")),
        Projection(
            items=(
                Item(expr=Expr.of("", "Room"), name="Room", type="string"),
                Item(expr=Expr.of("", "_agg0"), name="t", type="double"),
                Item(expr=Expr.of("", "window_start"), name="window_start", type="timestamp"),
            )
        ),
    )
    assert query.written.stateful


@pytest.mark.parametrize(
    ("window", "panes"),
    [
        ("[10s]", TimePanes(width_us=10_000_000, slide_us=10_000_000)),
        ("[1 min SLIDE 1 s]", TimePanes(width_us=MINUTE, slide_us=1_000_000)),
        ("[100 ROWS]", RowPanes(width=100, slide=100)),
        ("[100 ROWS SLIDE 10]", RowPanes(width=100, slide=10)),
        ("[100 ROWS SLIDE 1 ROWS]", RowPanes(width=100, slide=1)),
    ],
)
def test_windows(window: str, panes: Panes) -> None:
    assert aggregate(bind(f"SELECT count(*) FROM Sensor1{window}")).panes == panes


@pytest.mark.parametrize(
    ("written", "function"),
    [
        ("sum(Temp)", "SUM"),
        ("COUNT(Temp)", "COUNT"),
        ("avg(Temp)", "AVG"),
        ("mean(Temp)", "AVG"),
        ("min(Room)", "MIN"),
        ("MAX(Room)", "MAX"),
        ("var(Temp)", "VAR_SAMP"),
        ("variance(Temp)", "VAR_SAMP"),
        ("var_samp(Temp)", "VAR_SAMP"),
        ("var_pop(Temp)", "VAR_POP"),
        ("stddev(Temp)", "STDDEV_SAMP"),
        ("std(Temp)", "STDDEV_SAMP"),
        ("stddev_samp(Temp)", "STDDEV_SAMP"),
        ("stddev_pop(Temp)", "STDDEV_POP"),
    ],
)
def test_functions(written: str, function: str) -> None:
    query = bind(f"SELECT {written} FROM Sensor1[1s]")
    [call] = aggregate(query).calls
    assert call.function == function
    assert len(call.arguments) == 1
    assert items(query) == [("_agg0", written)]


def test_count_distinct() -> None:
    [call] = aggregate(bind("SELECT COUNT(DISTINCT Room, Temp) FROM Sensor1[1s]")).calls
    assert (call.function, call.distinct) == ("COUNT", True)
    assert [str(argument) for argument in call.arguments] == ["Sensor1.Room", "Sensor1.Temp"]


def test_calls_anywhere_in_expressions_each_once() -> None:
    query = bind(
        "SELECT AVG(Temp) * 2 + 1 AS x, round(avg(sensor1.temp), 1) AS y,"
        " CASE WHEN sum(Temp) > 3 THEN 'a' ELSE 'b' END AS z, sum( Temp ) / count(*) AS m"
        " FROM Sensor1[1s]"
    )
    assert [call.function for call in aggregate(query).calls] == ["AVG", "SUM", "COUNT"]
    assert items(query) == [
        ("_agg0 * 2 + 1", "x"),
        ("round(_agg0, 1)", "y"),
        ("CASE WHEN _agg1 > 3 THEN 'a' ELSE 'b' END", "z"),
        ("_agg1 / _agg2", "m"),
    ]


def test_arguments_are_expressions() -> None:
    query = bind("SELECT SUM(greatest(Temp, pos.x) * 2) AS x FROM Sensor1[1s]")
    [call] = aggregate(query).calls
    assert call.arguments == (expr("greatest(?, ?.x) * 2", "Temp", "pos"),)


@pytest.mark.parametrize(
    ("group", "item", "bound"),
    [
        ("Room", "Room", "Room"),
        ("room", "Sensor1.ROOM", "Room"),
        ("upper(Room)", "UPPER( room )", "_key0"),
        ("upper(Room)", "concat(upper(Room), 'x')", "concat(_key0, 'x')"),
        ("Temp % 10", "Temp % 10", "_key0"),
        ("Temp % 10", "(Temp%10) + 1", "(_key0) + 1"),
        ("Temp % 10", "round(Temp % 10, 1)", "round(_key0, 1)"),
        ("(Temp + 1)", "(Temp + 1) * 2", "_key0 * 2"),
        ("pos.x", "pos.x + 1", "_key0 + 1"),
        ("pos", "pos.x", "pos.x"),
        ("Room, Room", "Room", "Room"),
        ("Room, window_start", "window_end", "window_end"),
        ("WINDOW_START", "window_start", "window_start"),
    ],
)
def test_what_is_grouped_by_may_be_used(group: str, item: str, bound: str) -> None:
    query = bind(f"SELECT {item} AS x, count(*) AS n FROM Sensor1[1s] GROUP BY {group}")
    assert items(query)[0] == (bound, "x")


def test_group_by_the_name_of_an_item() -> None:
    query = bind("SELECT Temp % 10 AS bucket, count(*) FROM Sensor1[1s] GROUP BY Bucket")
    assert [str(key.expr) for key in aggregate(query).keys] == ["Sensor1.Temp % 10"]
    assert items(query)[0] == ("_key0", "bucket")


def test_group_by_without_aggregates() -> None:
    query = bind("SELECT room FROM Sensor1[1s] GROUP BY Room")
    assert aggregate(query).calls == ()
    assert items(query) == [("Room", "Room")]


def test_an_inputs_column_called_like_a_bound_is_qualified() -> None:
    [stream] = define("CREATE STREAM s (window_start TIMESTAMP, a INT) FROM f() AT x")
    query = bind(
        "SELECT s.window_start AS theirs, window_start AS ours, max(window_start) AS newest"
        " FROM s[1s] GROUP BY s.window_start",
        lookup=lambda name: stream if name == "s" else None,
    )
    assert items(query) == [("_key0", "theirs"), ("window_start", "ours"), ("_agg0", "newest")]
    assert aggregate(query).calls[0].arguments == (Expr.of("s", "window_start"),)


def test_the_bounds_of_counted_windows_are_positions() -> None:
    query = bind("SELECT window_start, window_end, count(*) FROM Sensor1[5 ROWS]")
    assert [column.type for column in query.columns] == ["bigint", "bigint", "bigint"]


def test_types_are_asked_before_and_behind_the_aggregate() -> None:
    typer = FakeTyper()
    bind(
        "SELECT upper(Room) AS u, COUNT(DISTINCT Room) * 2 AS n, count(*), avg(Temp) FROM"
        " Sensor1[1s] WHERE Temp > 1 GROUP BY upper(Room) HAVING avg(Temp) > 3",
        typer,
    )
    first, second = typer.calls
    assert first.aggregate
    assert first.expressions == (
        "upper(`Room`)",
        "`Temp` > 1",
        "COUNT(DISTINCT `Room`)",
        "COUNT(*)",
        "`Temp`",
        "AVG(`Temp`)",
    )
    assert not second.aggregate
    assert second.expressions == ("`_key0`", "`_agg0` * 2", "`_agg1`", "`_agg2`", "`_agg2` > 3")
    assert [column.name for column in second.columns] == [
        "_key0",
        "_agg0",
        "_agg1",
        "_agg2",
        "window_start",
        "window_end",
    ]


def test_a_users_aggregate() -> None:
    typer = FakeTyper()
    query = bind("SELECT Middle(Temp) + 1 AS m, weighted(Temp, 1) AS w FROM Sensor1[1s]", typer)
    middle, weighted = aggregate(query).calls
    assert middle == AggregateCall(
        function="middle",
        arguments=(Expr.of("Sensor1", "Temp"),),
        name="_agg0",
        type="DOUBLE",
        source=Call(name="python", options={"class": "stats:Middle", "base": "/data"}),
    )
    assert [str(argument) for argument in weighted.arguments] == [
        "Sensor1.Temp",
        "CAST(1 AS bigint)",
    ]
    assert typer.calls[0].expressions == ("`Temp`", "`Temp`", "1")
    assert items(query) == [("_agg0 + 1", "m"), ("_agg1", "w")]


def test_fields_of_structs_keep_their_names() -> None:
    query = bind("SELECT struct(Room, max(Temp) AS hottest) AS s FROM Sensor1[1s] GROUP BY Room")
    assert items(query) == [("struct(Room, _agg0 AS hottest)", "s")]


def test_uses_of_the_result_have_no_input() -> None:
    query = bind("SELECT Room, max(Temp) AS t FROM Sensor1[1s] GROUP BY Room HAVING Room > 'a'")
    after = query.written.operators[1:]
    assert all(isinstance(one, Selection | Projection) for one in after)
    selection, projection = after
    assert isinstance(selection, Selection)
    assert isinstance(projection, Projection)
    assert selection.condition.expr.uses == (Use(input="", column="Room"),)


@pytest.mark.parametrize("type_", ["struct<a:int,b:string>", "array<int>"])
def test_the_greatest_of_values_with_parts_is_refused(type_: str) -> None:
    """When the query is created, not when its first tuple comes."""

    class Typed(FakeTyper):
        def _answer(self, types: dict[str, str], sql: str) -> TypeAnswer:
            return TypeAnswer(type_) if sql.startswith("MAX(") else super()._answer(types, sql)

    with pytest.raises(ScriptError, match=r"MAX of a value of several parts .* CREATE AGGREGATE"):
        bind("CREATE QUERY q AS SELECT max(struct(Temp, Room)) FROM Sensor1[1s]", Typed())
