"""Window aggregates through Spark: its own results are what ours must be."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import expr

from anabranch.errors import ConfigError, TaskError
from anabranch.link.wire import wire_schema
from anabranch.plan.expressions import Expr, Use
from anabranch.plan.operators import (
    Aggregate,
    AggregateCall,
    Call,
    Column,
    Condition,
    Item,
    Operator,
    Projection,
    Selection,
)
from anabranch.plan.windows import RowPanes, TimePanes
from anabranch.site.tasks.aggregate import AggregateBody
from anabranch.site.tasks.body import Taken
from anabranch.spark.kept.expressions import Expressions
from anabranch.spark.session import arrow_schema
from anabranch.stream.batch import END_WATERMARK, Batch
from tests.window.naive_aggregate import (
    SCHEMA,
    TYPES,
    Cut,
    Panes,
    Point,
    Row,
    Step,
    bits,
    call,
    cuts,
    item,
    naive,
    run,
)

pytestmark = pytest.mark.spark
US = timedelta(microseconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def body(
    spark: SparkSession,
    panes: Panes,
    keys: Sequence[Item],
    calls: Sequence[AggregateCall],
    schema: pa.Schema,
    behind: Sequence[Operator] = (),
    columns: pa.Schema | None = None,
    block: int = 4,
) -> AggregateBody:
    bound = pa.timestamp("us", "UTC") if isinstance(panes, TimePanes) else pa.int64()
    if not behind:
        names = ["window_start", "window_end", *(k.name for k in keys), *(c.name for c in calls)]
        items = tuple(Item(expr=Expr.of("", name), name=name, type="") for name in names)
        behind = [Projection(items=items)]
    if columns is None:
        typed = [*((k.name, k.type) for k in keys), *((c.name, c.type) for c in calls)]
        fields = [(name, arrow(type)) for name, type in typed]
        columns = pa.schema([("window_start", bound), ("window_end", bound), *fields])
    aggregate = Aggregate(panes=panes, keys=tuple(keys), calls=tuple(calls))
    return AggregateBody(Expressions(spark), "S", schema, [aggregate, *behind], columns, block)


def arrow(type: str) -> pa.DataType:
    return arrow_schema([Column(name="x", type=type)]).field(0).type


def stepper(made: AggregateBody, schema: pa.Schema) -> Step:
    wire = wire_schema(schema)

    def step(rows: Sequence[Row], first: int, cut: Cut) -> tuple[list[tuple[Any, ...]], Point]:
        batch = pa.RecordBatch.from_pylist(list(rows), wire)
        batches = [Batch("S", first, cut.watermark, 1, batch)] if rows else []
        out = made.step([Taken(batches, cut.last, cut.watermark)])
        *columns, ts, born = out.table.columns
        plain = [[plain_value(v) for v in c.to_pylist()] for c in (ts, born, *columns)]
        (needless,) = out.needless
        return list(zip(*plain, strict=True)), Point(0, out.watermark, needless, out.instant)

    return step


def plain_value(value: Any) -> Any:
    return (value - EPOCH) // US if isinstance(value, datetime) else value


COLUMNS = pa.schema([field for field in SCHEMA if not field.name.startswith("_")])


def stream(seed: int, count: int = 40) -> list[Row]:
    draw = random.Random(seed)
    return [
        {
            "k": draw.choice(["a", "b", None]),
            "j": draw.choice([1, 2, None]),
            "n": draw.choice([None, *range(-9, 10)]),
            "x": draw.choice([None, *map(float, range(-9, 10))]),
            "s": draw.choice([None, "", "a", "é", "😀"]),
            "d": draw.choice([None, Decimal("1.25"), Decimal("-3.10"), Decimal("99.99")]),
            "_ts": place + draw.randrange(-8, 9),
            "_born": draw.randrange(100),
        }
        for place in range(count)
    ]


@pytest.mark.parametrize(
    ("seed", "panes", "keys"),
    [
        (1, TimePanes(width_us=10, slide_us=10), ["k"]),
        (2, TimePanes(width_us=12, slide_us=3), ["k", "j"]),
        (3, TimePanes(width_us=10, slide_us=4), []),
        (4, TimePanes(width_us=3, slide_us=8), ["j"]),
        (5, RowPanes(width=10, slide=4), ["k"]),
        (6, RowPanes(width=3, slide=5), []),
    ],
)
def test_it_gives_what_the_definition_says_whatever_the_cuts_and_restarts(
    spark: SparkSession, seed: int, panes: Panes, keys: list[str]
) -> None:
    rows = stream(seed)
    draw = random.Random(seed)
    calls = [
        call("COUNT"),
        call("COUNT", "s", "n", distinct=True),
        call("SUM", "n"),
        call("SUM", "x"),
        call("MIN", "s"),
        call("MAX", "d"),
        call("SUM", "d"),
    ]
    items = [item(key) for key in keys]

    def fresh(instant: int | None = None) -> Step:
        made = body(spark, panes, items, calls, COLUMNS)
        if instant is not None:
            made.open(instant)
        return stepper(made, COLUMNS)

    steps = cuts(rows, draw.sample(range(40), 4), lambda: draw.choice([0, 3]))
    got, points = run(fresh(), rows, steps)
    offset = isinstance(panes, RowPanes)  # positions count from 1
    wanted = naive(panes, keys, calls, rows)
    assert got == [(ts, born, start + offset, *rest) for ts, born, start, *rest in wanted]

    point = draw.choice(points[1:-1])
    steps = cuts(rows, draw.sample(range(40), 2), lambda: 1, point.needless + 1)
    rest, _ = run(fresh(point.instant), rows, steps, point.needless)
    assert rest == got[point.outputs :]


NAN, INF = math.nan, math.inf
VALUES: dict[str, list[Any]] = {
    "tinyint": [1, -128, None, 127, 5],
    "int": [2**31 - 1, 2**31 - 1, None, -5],
    "bigint": [2**53 + 1, 1, None, -7, 2**53 + 3],
    "float": [0.5, -1.25, None, 3.0, 1e10],
    "double": [0.1, 0.2, 0.3, None, 1e6, -7.5],
    "decimal(10,2)": [Decimal("1.25"), Decimal("-7.77"), None, Decimal("99999999.99")],
    "decimal(38,10)": [Decimal("1.0000000001"), None, Decimal("-2.5")],
    "string": ["b", "a", None, "é", "😀", "\uffff"],
    "boolean": [True, None, False],
    "date": [date(2024, 1, 2), None, date(1969, 1, 1)],
    "timestamp": [datetime(2024, 1, 2, tzinfo=UTC), None, datetime(1960, 1, 1, tzinfo=UTC)],
    "timestamp_ntz": [datetime(2024, 1, 2), None, datetime(1960, 1, 1)],
    "binary": [b"b", None, b"a", b"\xff"],
    "interval day to second": [timedelta(seconds=1), None, timedelta(days=-3)],
}
NUMBERS = ["SUM", "AVG", "VAR_POP", "VAR_SAMP", "STDDEV_POP", "STDDEV_SAMP"]


def functions(type: str) -> list[str]:
    if type in ("tinyint", "int", "bigint", "float", "double") or type.startswith("decimal"):
        return ["MIN", "MAX", "COUNT", *NUMBERS]
    return ["MIN", "MAX", "COUNT", *(["SUM"] if type.startswith("interval") else [])]


@pytest.mark.parametrize("type", VALUES)
def test_every_type_gives_what_spark_gives(spark: SparkSession, type: str) -> None:
    """Several keys: with all values, one, none, and for floats with NaN and infinities."""
    values = VALUES[type]
    groups = [values, values[:1], [None, None], values[::-1]]
    if type in ("float", "double"):
        groups += [[1.0, NAN, 2.0], [INF, 1.0], [INF, -INF], [NAN, None]]
    schema = pa.schema([("g", pa.int64()), ("v", arrow(type))])
    rows = [
        {"g": g, "v": v, "_ts": i, "_born": 0}
        for g, group in enumerate(groups)
        for i, v in enumerate(group)
    ]
    random.Random(type).shuffle(rows)
    names = functions(type)
    table = pa.Table.from_pylist(rows, wire_schema(schema))
    frame = spark.createDataFrame(table)
    wanted = frame.groupBy("g").agg(*(expr(f"{f}(v) AS {f}") for f in names))
    types = {field.name: field.dataType.simpleString() for field in wanted.schema}
    v = (Expr.of("S", "v"),)
    calls = [AggregateCall(function=f, arguments=v, name=f, type=types[f]) for f in names]
    key = Item(expr=Expr.of("S", "g"), name="g", type="bigint")
    panes = TimePanes(width_us=9, slide_us=2)  # the window [0, 9) holds all
    made = body(spark, panes, [key], calls, schema, block=3)
    out, _ = run(stepper(made, schema), rows, [Cut(7, -8), Cut(len(rows), END_WATERMARK)])
    got = {row[4]: row[5:] for row in out if row[2] == 0}
    for row in wanted.toArrow().to_pylist():
        mine, theirs = got.pop(row["g"]), [plain_value(row[f]) for f in names]
        for function, a, b in zip(names, mine, theirs, strict=True):
            near = isinstance(b, float) and a is not None and math.isclose(a, b, rel_tol=1e-9)
            # Spark's variance of infinities is NaN as well.
            assert near or bits(a) == bits(b) or (a != a and b != b), (function, row["g"])
    assert not got


WILD = pa.schema([("k", pa.int64()), ("s", pa.string()), ("x", pa.float64())])


def wild(count: int) -> list[Row]:
    """Floats of all sizes, whose sum is another one in any other order."""
    draw = np.random.default_rng(5)
    xs = draw.standard_normal(count) * 10.0 ** draw.integers(-18, 19, count)
    keys = draw.integers(0, 7, count)
    return [
        {"k": k, "s": str(k), "x": x, "_ts": t // 3, "_born": 0}
        for t, (k, x) in enumerate(zip(keys.tolist(), xs.tolist(), strict=True))
    ]


def wild_body(spark: SparkSession) -> AggregateBody:
    x, double = (Expr.of("S", "x"),), "double"
    calls = [
        AggregateCall(function=f, arguments=x, name=f, type=double)
        for f in ("SUM", "AVG", "VAR_SAMP", "MIN")
    ]
    key = Item(expr=Expr.of("S", "k"), name="k", type="bigint")
    panes = TimePanes(width_us=300, slide_us=70)
    return body(spark, panes, [key], calls, WILD, block=64)


def test_sums_of_floats_are_sequential_to_the_bit(spark: SparkSession) -> None:
    rows = wild(3000)
    made = wild_body(spark)
    out, points = run(stepper(made, WILD), rows, cuts(rows, [100, 1500, 1501], lambda: 0))
    again, _ = run(stepper(wild_body(spark), WILD), rows, cuts(rows, [999], lambda: 0))
    assert bits(again) == bits(out)
    point = points[2]
    standby = wild_body(spark)
    standby.open(point.instant)
    steps = cuts(rows, [2000], lambda: 5, point.needless + 1)
    rest, _ = run(stepper(standby, WILD), rows, steps, point.needless)
    assert 0 < point.outputs < len(out)
    assert bits(rest) == bits(out[point.outputs :])

    # One tumbling block is the plain sum from left to right.
    calls = [AggregateCall(function="SUM", arguments=(Expr.of("S", "x"),), name="t", type="double")]
    whole = body(spark, TimePanes(width_us=10**6, slide_us=10**6), [], calls, WILD, block=10**6)
    ((*_, total),), _ = run(stepper(whole, WILD), rows, [Cut(3000, END_WATERMARK)])
    wanted = 0.0
    for row in rows:  # not sum(), which compensates from Python 3.12 on
        wanted += row["x"]
    assert bits(total) == bits(wanted)


def test_having_and_expressions_behind_the_aggregate(spark: SparkSession) -> None:
    rows = stream(9)
    calls = [call("SUM", "n"), call("COUNT")]
    panes = TimePanes(width_us=10, slide_us=5)
    total, count = Use(input="", column="SUM_n"), Use(input="", column="COUNT")
    having = Expr(pieces=("", " > 3"), uses=(count,))
    items = (
        Item(expr=Expr.of("", "k"), name="k", type="string"),
        Item(expr=Expr(pieces=("", " * 2"), uses=(total,)), name="twice", type="bigint"),
        Item(expr=Expr.of("", "window_end"), name="until", type="timestamp"),
    )
    behind = [Selection(condition=Condition(expr=having)), Projection(items=items)]
    columns = pa.schema(
        [("k", pa.string()), ("twice", pa.int64()), ("until", pa.timestamp("us", "UTC"))]
    )
    made = body(spark, panes, [item("k")], calls, COLUMNS, behind, columns)
    out, _ = run(stepper(made, COLUMNS), rows, cuts(rows, [10, 20], lambda: 0))
    wanted = [
        (ts, born, k, None if n is None else 2 * n, end)
        for ts, born, _, end, k, n, c in naive(panes, ["k"], calls, rows)
        if c > 3
    ]
    assert out == wanted


def test_keys_and_arguments_are_expressions(spark: SparkSession) -> None:
    rows = stream(10)
    n = Use(input="S", column="n")
    key = Item(expr=Expr(pieces=("", " % 2 = 0"), uses=(n,)), name="even", type="boolean")
    square = Expr(pieces=("", " * ", " + `_ts`"), uses=(n, n))
    calls = [AggregateCall(function="SUM", arguments=(square,), name="s", type="bigint")]
    panes = RowPanes(width=40, slide=40)
    out, _ = run(stepper(body(spark, panes, [key], calls, COLUMNS), COLUMNS), rows, [Cut(40, 0)])
    wanted: dict[Any, Any] = {}
    for row in rows:
        if row["n"] is None:
            wanted.setdefault(None, None)
        else:
            even = row["n"] % 2 == 0
            wanted[even] = wanted.get(even, 0) + row["n"] ** 2 + row["_ts"]
    assert {row[4]: row[5] for row in out} == wanted
    assert list(wanted) == [row[4] for row in out]


USER = """
class Joined:
    def lift(self, word, number):
        if word == "é":
            raise ValueError("no accents")
        return [(number, word)]
    def merge(self, a, b):
        a += b  # may change what it is given
        return a
    def lower(self, partial):
        return "|".join(f"{n}{w}" for n, w in partial)

class Short:
    def lift(self, x): return x
    def merge(self, a, b): return a + b

class Odd(Joined):
    def lower(self, partial): return 5
"""


def user_call(folder: Path, name: str) -> AggregateCall:
    (folder / "mine.py").write_text(USER)
    source = Call(name="python", options={"class": f"mine:{name}", "base": str(folder)})
    arguments = (Expr.of("S", "s"), Expr.of("S", "n"))
    return AggregateCall(
        function="joined", arguments=arguments, name="j", type="string", source=source
    )


@pytest.mark.parametrize("panes", [TimePanes(width_us=9, slide_us=2), RowPanes(width=9, slide=9)])
def test_a_users_aggregate(spark: SparkSession, tmp_path: Path, panes: Panes) -> None:
    rows = [row for row in stream(11) if row["s"] != "é"]
    calls = [user_call(tmp_path, "Joined"), call("SUM", "n")]
    made = body(spark, panes, [item("k")], calls, COLUMNS)
    out, _ = run(stepper(made, COLUMNS), rows, cuts(rows, [7, 20], lambda: 0))
    assert out
    for _, _, start, end, key, joined, _ in out:
        if isinstance(panes, RowPanes):
            inside = rows[start - 1 : end]
        else:
            inside = [row for row in rows if start <= row["_ts"] < end]
        words = [f"{row['n']}{row['s']}" for row in inside if row["k"] == key]
        assert sorted(joined.split("|")) == sorted(words)  # pane by pane, not by position


def test_errors_in_a_users_aggregate_name_class_and_method(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [dict.fromkeys(TYPES) | {"s": "é", "_ts": 0, "_born": 0}]
    panes = TimePanes(width_us=9, slide_us=2)
    steps = [Cut(1, END_WATERMARK)]
    made = body(spark, panes, [], [user_call(tmp_path, "Joined")], COLUMNS)
    with pytest.raises(TaskError) as caught:
        run(stepper(made, COLUMNS), rows, steps)
    assert "mine:Joined.lift failed: ValueError: no accents" in str(caught.value)
    assert "mine.py:5" in caught.value.place
    rows[0]["s"] = "a"
    made = body(spark, panes, [], [user_call(tmp_path, "Odd")], COLUMNS)
    with pytest.raises(TaskError) as caught:
        run(stepper(made, COLUMNS), rows, steps)
    assert "mine:Odd.lower gave what is no string" in str(caught.value)
    with pytest.raises(ConfigError) as refused:
        body(spark, panes, [], [user_call(tmp_path, "Short")], COLUMNS)
    assert "mine:Short has no method lower" in str(refused.value)


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_a_sum_never_wraps(spark: SparkSession, ansi: str) -> None:
    rows = [dict.fromkeys(TYPES) | {"n": 2**62, "_ts": 0, "_born": 0}] * 2
    made = body(spark, TimePanes(width_us=1, slide_us=1), [], [call("SUM", "n")], COLUMNS)
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        with pytest.raises(TaskError) as caught:
            run(stepper(made, COLUMNS), rows, [Cut(2, END_WATERMARK)])
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)
    assert "the sum of S.n exceeds BIGINT" in str(caught.value)


def test_it_opens_with_nothing_to_do(spark: SparkSession) -> None:
    made = body(spark, TimePanes(width_us=5, slide_us=1), [item("k")], [call("AVG", "x")], COLUMNS)
    made.open()
    out, points = run(stepper(made, COLUMNS), [], [Cut(0, 3), Cut(0, END_WATERMARK)])
    assert out == []
    assert [point.watermark for point in points] == [4, END_WATERMARK]
    made.close()
