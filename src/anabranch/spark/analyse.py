"""Asks Spark's own analyser for the types of expressions."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType

from anabranch.language.expressions.types import NO_FUNCTION
from anabranch.language.grammar.translations import function_like
from anabranch.plan.expressions import TypeAnswer
from anabranch.plan.operators import Column
from anabranch.spark.failures import plain
from anabranch.spark.session import spark_schema

_UNLIKE_A_TUPLE = {
    "Generate": "makes several tuples of one, or none",
    "Expand": "makes several tuples of one, or none",
    "Filter": "leaves tuples out",
    "Window": "is evaluated over more than the one tuple",
}
"""What a plan does that has such a node below its top. All there may be is the input."""


def analyse(
    spark: SparkSession,
    columns: Sequence[Column],
    expressions: Sequence[str],
    *,
    aggregate: bool = False,
) -> list[TypeAnswer]:
    """For each expression over `columns` its Spark type, or Spark's complaint about it. `columns`
    are all that the expressions may use, `_ts` included, called as they are in the expressions.
    Only with `aggregate` may these be aggregates, such as `avg(Temp)`."""
    frame = spark.createDataFrame([], spark_schema(columns))
    together = None if aggregate else _analyse_together(frame, expressions)
    return together or [_analyse_one(frame, one, aggregate) for one in expressions]


def _analyse_together(frame: DataFrame, expressions: Sequence[str]) -> list[TypeAnswer] | None:
    """Asks one question for all of them, which costs little more than one for each; None if
    anything is wrong with any of them.
    """
    try:
        result = frame.selectExpr(*expressions)
    except PySparkException:
        return None
    if len(result.schema) != len(expressions) or _misfit(result, ("Project",)):
        return None
    return [_typed(field.dataType) for field in result.schema]


def _analyse_one(frame: DataFrame, expression: str, aggregate: bool) -> TypeAnswer:
    try:
        result = frame.selectExpr(expression)
    except PySparkException as error:
        return TypeAnswer(None, _no_function(frame, error) or complaint(error))
    problem = _misfit(result, ("Project", "Aggregate") if aggregate else ("Project",))
    if not problem and len(result.schema) != 1:
        problem = "gives several columns; name one"
    return TypeAnswer(None, problem) if problem else _typed(result.schema[0].dataType)


def _no_function(frame: DataFrame, error: PySparkException) -> str:
    """The message for a function that Spark does not know; empty for other errors."""
    if error.getCondition() != "UNRESOLVED_ROUTINE":
        return ""
    name = (error.getMessageParameters() or {}).get("routineName", "").strip("`")
    known = (row[0] for row in frame.sparkSession.sql("SHOW SYSTEM FUNCTIONS").collect())
    like = function_like(name, known)
    return f"{NO_FUNCTION} {name}{'. ' if like else ''}{like}"


def _misfit(result: DataFrame, tops: Sequence[str]) -> str:
    """Why it is no function of the one tuple, or of the tuples of one group: Spark's analyser puts
    more below the one node of `tops` than the input.
    """
    plan = result._jdf.queryExecution().analyzed()
    if not plan.deterministic():
        return "gives another value each time it is evaluated"
    if plan.nodeName() not in tops:
        return "is not a per-tuple expression"
    inner = plan.children().apply(0)
    while inner.children().size():
        if inner.nodeName() in _UNLIKE_A_TUPLE:
            return f"{_UNLIKE_A_TUPLE[inner.nodeName()]}, so it is no expression of a tuple"
        inner = inner.children().apply(0)
    return "" if plan.children().apply(0).children().isEmpty() else "is not a per-tuple expression"


def _typed(type_: DataType) -> TypeAnswer:
    return TypeAnswer(type_.simpleString())


def check_types(columns: Sequence[Column]) -> list[TypeAnswer]:
    """For each column its type in Spark's spelling, or the complaint about it."""
    answers: list[TypeAnswer] = []
    for column in columns:
        try:
            answers.append(_plain_type(spark_schema([column])[0].dataType.simpleString()))
        except PySparkException as error:
            answers.append(TypeAnswer(None, complaint(error)))
    return answers


def _plain_type(spelled: str) -> TypeAnswer:
    """The type, which CHAR and VARCHAR are not: they are types of stored tables, and their values
    are STRINGs.
    """
    if "char(" in spelled:
        return TypeAnswer(None, f"{spelled} is a type of stored tables; write STRING")
    return TypeAnswer(spelled)


def complaint(error: PySparkException) -> str:
    """Spark's message without its error class, SQLSTATE and plan."""
    text = (error.getMessage() or str(error)).strip().splitlines()[0]
    if text.startswith("["):
        text = text.partition("] ")[2] or text
    text = plain(text)
    return text[:1].lower() + text[1:]
