"""SELECT … FROM STATE: one query of Spark's over what a stage has so far."""

from __future__ import annotations

from uuid import uuid4

from pyspark.sql import SparkSession

from anabranch.errors import ConfigError
from anabranch.link.messages import StateQuery, StateRows
from anabranch.plan.expressions import plain
from anabranch.site.tasks.body import apply
from anabranch.spark.failures import SPARK_ERRORS, cause
from anabranch.stage.results import StageResults

MOST_ROWS = 10_000
"""That are shown."""


def look(spark: SparkSession, results: StageResults, request: StateQuery) -> StateRows:
    """The columns and rows of the answer, as text, and the offsets that they belong to."""
    table, offsets = results.state()
    name = f"_state_{uuid4().hex}"
    try:
        frame = spark.createDataFrame(table.drop_columns("_ts"))
        apply(frame, request.operators, plain, carried=()).createOrReplaceTempView(name)
        answer = spark.sql(f"{request.before} {name} {request.after}").limit(MOST_ROWS).toArrow()
    except SPARK_ERRORS as error:
        raise ConfigError(cause(error)) from error
    finally:
        spark.catalog.dropTempView(name)
    rows = tuple(
        tuple("NULL" if value is None else str(value) for value in row.values())
        for row in answer.to_pylist()
    )
    return StateRows(tuple(answer.column_names), rows, offsets)
