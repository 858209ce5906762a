"""Types and complaints, as Spark says them."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from anabranch.plan.operators import Column
from anabranch.spark.analyse import NO_FUNCTION, analyse

PLAIN = (
    Column(name="Temp", type="double"),
    Column(name="Room", type="string"),
    Column(name="n", type="int"),
    Column(name="_ts", type="bigint"),
)
FLAT = tuple(
    Column(name=f"{alias}.{column.name}", type=column.type)
    for alias in ("Sensor1", "b")
    for column in PLAIN
)


def types(spark: SparkSession, *expressions: str, aggregate: bool = False) -> list[str | None]:
    columns = FLAT if "." in expressions[0] else PLAIN
    return [one.type for one in analyse(spark, columns, expressions, aggregate=aggregate)]


def error(spark: SparkSession, expression: str, aggregate: bool = False) -> str:
    columns = FLAT if "." in expression else PLAIN
    (answer,) = analyse(spark, columns, (expression,), aggregate=aggregate)
    assert answer.type is None
    return answer.error


def test_types_over_one_input(spark: SparkSession) -> None:
    found = types(spark, "`Temp`", "`Room`", "`n` + 1", "`Temp` > 50", "`_ts`", "'x'")
    assert found == ["double", "string", "int", "boolean", "bigint", "string"]


def test_types_over_several_inputs(spark: SparkSession) -> None:
    found = types(spark, "`Sensor1.Temp`", "`Sensor1.n` = `b.n`", "`b._ts`")
    assert found == ["double", "boolean", "bigint"]


def test_fields_of_structs_of_flat_columns(spark: SparkSession) -> None:
    found = types(spark, "struct(`Sensor1.Temp` AS `Temp`, `b.n` AS x)")
    assert found == ["struct<Temp:double,x:int>"]


@pytest.mark.parametrize(
    ("expression", "type_"),
    [
        ("SUM(`n`)", "bigint"),
        ("SUM(`Temp`)", "double"),
        ("COUNT(*)", "bigint"),
        ("COUNT(DISTINCT `Room`, `n`)", "bigint"),
        ("AVG(`n`)", "double"),
        ("MAX(`Room`)", "string"),
        ("VAR_SAMP(`n`)", "double"),
        ("STDDEV_POP(`Temp`)", "double"),
        ("upper(`Room`)", "string"),
        ("`Temp` > 1", "boolean"),
    ],
)
def test_types_of_aggregates(spark: SparkSession, expression: str, type_: str) -> None:
    assert types(spark, expression, aggregate=True) == [type_]


def test_an_aggregate_is_no_per_tuple_expression(spark: SparkSession) -> None:
    assert error(spark, "max(`Temp`)") == "is not a per-tuple expression"


@pytest.mark.parametrize("aggregate", [False, True])
@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("session_window(timestamp_micros(`_ts`), '10 seconds')", "leaves tuples out"),
        ("window(timestamp_micros(`_ts`), '10 seconds', '5 seconds')", "leaves tuples out"),
        ("window(timestamp_micros(`_ts`), '10 seconds')", "leaves tuples out"),
        ("explode(array(`n`))", "makes several tuples of one"),
        ("stack(2, `n`, `n`)", "makes several tuples of one"),
        ("row_number() OVER (ORDER BY `n`)", "over more than the one tuple"),
    ],
)
def test_what_is_no_function_of_one_tuple(
    spark: SparkSession, expression: str, problem: str, aggregate: bool
) -> None:
    assert problem in error(spark, expression, aggregate)


def test_one_that_is_wrong_among_others(spark: SparkSession) -> None:
    """They are asked together; each has its own answer all the same."""
    found = types(spark, "`n` + 1", "explode(array(`n`))", "nosuch(`n`)", "`Temp`")
    assert found == ["int", None, None, "double"]


def test_two_of_one_name(spark: SparkSession) -> None:
    assert types(spark, "`n`", "`n`", "`n` + 1") == ["int", "int", "int"]


@pytest.mark.parametrize("aggregate", [False, True])
def test_complaints(spark: SparkSession, aggregate: bool) -> None:
    assert "nosuch" in error(spark, "nosuch(`Temp`)", aggregate)
    assert "another value" in error(spark, "`Temp` + rand()", aggregate)


def test_how_a_complaint_names_the_columns_of_several_inputs(spark: SparkSession) -> None:
    """As people write them."""
    assert '"(Sensor1.Temp AND b.n)"' in error(spark, "`Sensor1.Temp` AND `b.n`")


def test_what_is_said_of_a_function_that_is_none(spark: SparkSession) -> None:
    """CREATE AGGREGATE tells from it whether a name is free."""
    columns: tuple[Column, ...] = ()
    said = [one.error for one in analyse(spark, columns, ("`p90`()", "`avg`()", "`pi`()"))]
    assert [one.startswith(NO_FUNCTION) for one in said] == [True, False, False]


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("uper(`Room`)", "there is no function uper. Did you mean upper()?"),
        (
            "JSON_VALUE(`Room`, '$.a')",
            "there is no function JSON_VALUE. Did you mean get_json_object()?",
        ),
        ("qqq(`Room`)", "there is no function qqq"),
    ],
)
def test_a_function_that_is_not_there(spark: SparkSession, expression: str, said: str) -> None:
    assert error(spark, expression) == said
