"""Kept plan and job give the same rows and the same errors: all types, all of Spark's functions."""

from __future__ import annotations

import re
import string
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from anabranch.plan.operators import Column
from anabranch.spark.kept.expressions import Expressions
from anabranch.spark.kept.plan import Build, KeptPlan
from anabranch.spark.session import arrow_schema
from anabranch.window.aggregate.cells import as_int

pytestmark = pytest.mark.spark
FOLDING = "org.apache.spark.sql.catalyst.optimizer.ConstantFolding"
Outcome = tuple[str, Any]


def outcome(run: Callable[[], pa.Table]) -> Outcome:
    """What comes out of it: a table, or an error with its text."""
    try:
        return "rows", run()
    except PySparkException as error:
        return type(error).__name__, error.getMessage()
    except pa.ArrowException as error:  # of a type that Spark gives and Arrow does not take
        return type(error).__name__, str(error)


def same(a: Outcome, b: Outcome) -> bool:
    """To the bit; NaN is NaN."""
    if a[0] != "rows" or b[0] != "rows":
        return a == b
    return str(a[1].schema) == str(b[1].schema) and shown(a[1]) == shown(b[1])


def shown(table: pa.Table) -> str:
    """Dates and times as numbers: Python's own end with the year 9999."""
    return repr([as_int(c).to_pylist() if pa.types.is_temporal(c.type) else c.to_pylist()
                 for c in table.columns])  # fmt: skip


def job(spark: SparkSession, table: pa.Table, build: Build) -> pa.Table:
    return Expressions(spark, "job").evaluation(table.schema, build)(table)


def differences(a: Outcome, b: Outcome) -> list[tuple[Any, Any]]:
    if a[0] != "rows" or b[0] != "rows":
        return [(a, b)]
    fields = zip(a[1].schema, b[1].schema, strict=True)
    columns = zip(a[1].columns, b[1].columns, strict=True)
    return [(x, y) for x, y in fields if str(x) != str(y) or x.nullable != y.nullable] + [
        (x, y) for x, y in columns if repr(x) != repr(y)
    ]


def compare(spark: SparkSession, table: pa.Table, *selected: str) -> tuple[str, str]:
    """What came out of both ways, if it is the same, and why no plan was kept, if none was."""

    def build(frame: DataFrame) -> DataFrame:
        return frame.selectExpr(*selected)

    expressions = Expressions(spark, "kept")
    evaluate = expressions.evaluation(table.schema, build)
    try:
        ours = outcome(lambda: evaluate(table))
    finally:
        expressions.close()
    theirs = outcome(lambda: job(spark, table, build))
    assert same(ours, theirs), differences(ours, theirs)
    return ours[0], evaluate.unfit


# -- types ------------------------------------------------------------

ints = {bits: st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)}
times = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31))
texts = st.text(max_size=6)
small = st.decimals(-10_000, 10_000, places=2, allow_nan=False)
TYPES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "tinyint": ints[8],
    "smallint": ints[16],
    "int": ints[32],
    "bigint": ints[64],
    "float": st.floats(width=32),
    "double": st.floats(),
    "decimal(10,2)": small,
    "decimal(38,18)": st.decimals(-(10**19), 10**19, places=18, allow_nan=False),
    "string": texts,
    "binary": st.binary(max_size=6),
    "date": st.dates(date(1, 1, 1), date(9999, 12, 31)),
    "timestamp": times.map(lambda t: t.replace(tzinfo=UTC)),
    "timestamp_ntz": times,
    "interval day to second": st.timedeltas(timedelta(days=-9999), timedelta(days=9999)),
    "array<int>": st.lists(st.none() | ints[32], max_size=3),
    "array<array<string>>": st.lists(
        st.none() | st.lists(st.none() | texts, max_size=2), max_size=2
    ),
    "map<string,double>": st.dictionaries(texts, st.none() | st.floats(), max_size=3).map(
        lambda d: list(d.items())
    ),
    "struct<a:int,b:struct<c:string,d:decimal(10,2)>>": st.fixed_dictionaries(
        {
            "a": st.none() | ints[32],
            "b": st.none()
            | st.fixed_dictionaries({"c": st.none() | texts, "d": st.none() | small}),
        }
    ),
}  # fmt: skip
NAMES = dict(zip(TYPES, string.ascii_lowercase, strict=False))


@cache
def schema() -> pa.Schema:
    """Of a table with a column of each type, as Spark has it."""
    return arrow_schema(Column(name=NAMES[type], type=type) for type in TYPES)


rows = st.lists(
    st.fixed_dictionaries({NAMES[t]: st.none() | v for t, v in TYPES.items()}), max_size=8
)
SAFE = [
    *(f"{name}" for name in NAMES.values()),
    *(f"{name} IS NULL AS n_{name}" for name in NAMES.values()),
    *(f"hash({name}) AS h_{name}" for t, name in NAMES.items() if not t.startswith("map")),
    "coalesce(b, 1Y) AS co", "if(a, d, e) AS cond", "upper(j) || '-' || j AS up",
    "j LIKE '%a%' AS li",
    "to_json(struct(p, r, s)) AS js", "sort_array(p) AS so", "map_keys(r) AS mk", "s.b.c AS inner",
    "CAST(h AS DOUBLE) AS hd", "try_cast(j AS INT) AS tc", "e <=> d AS eq", "greatest(f, g) AS gr",
    "date_trunc('MONTH', m) AS mo", "size(q) AS si", "round(g, 2) AS rg", "base64(k) AS ba",
    "date_format(m, 'yyyy-MM-dd HH:mm:ss.SSSSSS') AS fmt",
]  # fmt: skip
FAILING = [
    "d + 1 AS v", "b * b AS v", "100 DIV c AS v", "CAST(g AS INT) AS v", "CAST(j AS DOUBLE) AS v",
    "element_at(p, 2) AS v", "h * i AS v", "p[5] AS v", "CAST(e AS TINYINT) AS v", "-e AS v",
    "make_date(d, 1, 1) AS v", "to_timestamp(j) AS v", "abs(d) AS v", "1 / f AS v",
]  # fmt: skip


@cache
def safe_plan(spark: SparkSession) -> KeptPlan:
    return KeptPlan(spark, schema(), safe)


def safe(frame: DataFrame) -> DataFrame:
    return frame.where("a OR a IS NULL").selectExpr(*SAFE)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(rows)
def test_any_values_of_any_type(spark: SparkSession, made: list[dict[str, Any]]) -> None:
    table = pa.Table.from_pylist(made, schema())
    kept = safe_plan(spark)
    ours, theirs = outcome(lambda: kept(table)), outcome(lambda: job(spark, table, safe))
    assert same(ours, theirs), differences(ours, theirs)


BORN = pa.field("_born", pa.int64())


@cache
def carrying_plan(spark: SparkSession) -> KeptPlan:
    return KeptPlan(spark, schema().append(BORN), carrying)


def carrying(frame: DataFrame) -> DataFrame:
    """Nearly all of it stays in Python."""
    return frame.where("a OR a IS NULL").selectExpr("*", "upper(j) AS up", "s AS struct", "d + 1L")


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(rows)
def test_any_values_that_are_not_computed(spark: SparkSession, made: list[dict[str, Any]]) -> None:
    table = pa.Table.from_pylist(made, schema())
    table = table.append_column(BORN, pa.array(range(7, 7 + len(table)), pa.int64()))
    kept = carrying_plan(spark)
    assert len(kept._used) == 4  # a, d, j and the place of the row numbers
    ours, theirs = outcome(lambda: kept(table)), outcome(lambda: job(spark, table, carrying))
    assert same(ours, theirs), differences(ours, theirs)


@cache
def failing_plan(spark: SparkSession, expression: str) -> KeptPlan:
    return KeptPlan(spark, schema(), lambda frame: frame.selectExpr(expression))


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(rows, st.sampled_from(FAILING))
def test_errors_and_their_texts(
    spark: SparkSession, made: list[dict[str, Any]], expression: str
) -> None:
    table = pa.Table.from_pylist(made, schema())
    kept = failing_plan(spark, expression)
    ours = outcome(lambda: kept(table))
    theirs = outcome(lambda: job(spark, table, lambda frame: frame.selectExpr(expression)))
    assert same(ours, theirs), (ours, theirs)


# -- functions ------------------------------------------------------------


REFUSED = re.compile(r"\b(curdate|current_\w+|now|localtime\w*|unix_timestamp\(\)|user)\b", re.I)
"""By the language: they give another value each time, or elsewhere."""
RANDOM = re.compile(r"\baes_encrypt\b", re.I)
"""Without an initialization vector it draws one, though Spark takes it for deterministic."""


def examples(spark: SparkSession) -> dict[str, list[str]]:
    """By function of Spark's: what its documentation shows."""
    jvm: Any = spark._jvm
    registry = jvm.org.apache.spark.sql.catalyst.analysis.FunctionRegistry
    names = registry.builtin().listFunction()
    found = {}
    for i in range(names.size()):
        info = registry.builtin().lookupFunction(names.apply(i)).get()
        shown = [line.strip() for line in str(info.getExamples()).splitlines()]
        queries = [line.removeprefix("> SELECT ") for line in shown if line.startswith("> SELECT ")]
        found[str(info.getName())] = [
            one for one in (query.removesuffix(";") for query in queries)
            if " FROM " not in one.upper() and not REFUSED.search(one) and not RANDOM.search(one)
        ]  # fmt: skip
    return found


def fits(frame: DataFrame, expression: str) -> bool:
    """A query may contain it: one column per tuple, always the same, of a type that travels."""
    try:
        made = frame.selectExpr(f"{expression} AS one")
        if "variant" in made.schema[0].dataType.simpleString():
            return False  # PySpark cannot read NULLs of it, and the language does not have it
        arrow_schema([Column(name="one", type=made.schema[0].dataType.simpleString())])
    except Exception:
        return False
    plan = made._jdf.queryExecution().analyzed()
    return len(made.schema) == 1 and bool(plan.deterministic()) and plan.nodeName() == "Project"


def test_every_function_of_spark(spark: SparkSession) -> None:
    """The last example of each, which is mostly the one with all arguments."""
    frame = spark.createDataFrame(pa.table({"n": [1, 2]}))
    last = (
        next((one for one in reversed(shown) if fits(frame, one)), None)
        for shown in examples(spark).values()
    )
    usable = list(dict.fromkeys(filter(None, last)))
    assert len(usable) > 300
    check_functions(spark, usable)


@pytest.mark.soak
def test_every_example_of_spark(spark: SparkSession) -> None:
    frame = spark.createDataFrame(pa.table({"n": [1, 2]}))
    shown = dict.fromkeys(one for some in examples(spark).values() for one in some)
    usable = [one for one in shown if fits(frame, one)]
    assert len(usable) > 700
    check_functions(spark, usable)


def check_functions(spark: SparkSession, usable: list[str]) -> None:
    """With constants left as they are, so that generated code computes them, not the optimizer."""
    table = pa.table({"n": [1, 2]})
    spark.conf.set("spark.sql.optimizer.excludedRules", FOLDING)
    try:
        found = [one for start in range(0, len(usable), 24)
                 for one in judged(spark, table, usable[start : start + 24])]  # fmt: skip
    finally:
        spark.conf.unset("spark.sql.optimizer.excludedRules")
    differing = [text for verdict, text in found if verdict == "differs"]
    unfit = [text for verdict, text in found if verdict == "is a job"]
    assert not differing, "\n".join(differing)
    assert len(unfit) <= len(usable) // 50, "\n".join(unfit)


def judged(spark: SparkSession, table: pa.Table, expressions: list[str]) -> list[tuple[str, str]]:
    """What is to be said of some. All at once first: one that fails, or needs a job, would hide the
    others."""
    named = [f"{one} AS v{i}" for i, one in enumerate(expressions)]
    try:
        kind, unfit = compare(spark, table, *named)
        if kind == "rows" and not unfit:
            return []
        verdict = ("is a job", unfit) if unfit else ("fails", kind)
    except AssertionError as error:
        verdict = ("differs", str(error))
    if len(expressions) == 1:
        return [(verdict[0], f"{expressions[0]}: {verdict[1]}"[:300])]
    half = len(expressions) // 2
    return [one for some in (expressions[:half], expressions[half:])
            for one in judged(spark, table, some)]  # fmt: skip


# -- shapes ------------------------------------------------------------


def test_three_hundred_columns(spark: SparkSession) -> None:
    names = [f"c{i}" for i in range(300)]
    table = pa.table({name: [i, None, -i] for i, name in enumerate(names)})
    assert compare(spark, table, *(f"{name} + 1 AS {name}" for name in names)) == ("rows", "")


def test_no_column_of_the_input(spark: SparkSession) -> None:
    assert compare(spark, pa.table({"n": [1, 2, 3]}), "1 AS one", "'a' AS a") == ("rows", "")


def test_a_million_tuples(spark: SparkSession) -> None:
    table = pa.table({"n": range(1_000_000)})

    def build(frame: DataFrame) -> DataFrame:
        return frame.where("n % 7 != 3").selectExpr("n * 2 AS m")

    kept = KeptPlan(spark, table.schema, build)
    assert kept(table).equals(job(spark, table, build))
    kept.close()


def test_decimals_beyond_their_type(spark: SparkSession) -> None:
    table = pa.table({"d": pa.array([Decimal(10) ** 37], pa.decimal128(38, 0))})
    assert compare(spark, table, "d * 100 AS v")[1] == ""
