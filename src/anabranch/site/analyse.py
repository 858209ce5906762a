"""Types of expressions, from Spark's own analyser."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from anabranch.plan.operators import Column
from anabranch.site.spark import spark_schema

Answer = dict[str, str | None]
_PER_TUPLE = ("Project", "Generate")


def analyse(
    spark: SparkSession,
    columns: Sequence[Column],
    expressions: Sequence[str],
    *,
    aggregate: bool = False,
) -> list[Answer]:
    """For each expression over `columns` its Spark type, or Spark's complaint about it. `columns`
    are all that the expressions may use, `_ts` included, called as they are in the expressions.
    Only with `aggregate` may these be aggregates, such as `avg(Temp)`."""
    frame = spark.createDataFrame([], spark_schema(columns))
    return [_analyse_one(frame, expression, aggregate) for expression in expressions]


def _analyse_one(frame: DataFrame, expression: str, aggregate: bool) -> Answer:
    try:
        result = frame.selectExpr(expression)
    except PySparkException as error:
        return {"type": None, "error": complaint(error)}
    if len(result.schema) != 1:
        return {"type": None, "error": "gives several columns; name one"}
    plan = result._jdf.queryExecution().analyzed()
    if not plan.deterministic():
        return {"type": None, "error": "gives another value each time it is evaluated"}
    if plan.nodeName() not in (*_PER_TUPLE, "Aggregate" if aggregate else "Project"):
        return {"type": None, "error": "is not a per-tuple expression"}
    return {"type": result.schema[0].dataType.simpleString(), "error": ""}


def check_types(columns: Sequence[Column]) -> list[Answer]:
    """For each column its type in Spark's spelling, or the complaint about it."""
    answers: list[Answer] = []
    for column in columns:
        try:
            answers.append(_plain_type(spark_schema([column])[0].dataType.simpleString()))
        except PySparkException as error:
            answers.append({"type": None, "error": complaint(error)})
    return answers


def _plain_type(spelled: str) -> Answer:
    """CHAR and VARCHAR are types of stored tables; values of them are STRINGs."""
    if "char(" in spelled:
        return {"type": None, "error": f"{spelled} is a type of stored tables; write STRING"}
    return {"type": spelled, "error": ""}


def complaint(error: PySparkException) -> str:
    """Spark's message without its error class, SQLSTATE and plan."""
    text = (error.getMessage() or str(error)).strip().splitlines()[0]
    if text.startswith("["):
        text = text.partition("] ")[2] or text
    text = text.partition(" SQLSTATE:")[0].rstrip(". ")
    return text[:1].lower() + text[1:]
