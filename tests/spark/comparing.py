"""A kept query and a job over the same tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from anabranch.spark.inside import from_arrow_schema
from anabranch.window.aggregate.cells import as_int

Tables = Mapping[str, pa.Table]


def job(spark: SparkSession, sql: str, tables: Tables) -> pa.Table:
    for name, table in tables.items():
        frame = spark.createDataFrame(table, from_arrow_schema(table.schema))
        frame.createOrReplaceTempView(name)
    return spark.sql(sql).toArrow()


def content(table: pa.Table) -> Counter[str]:
    """Its rows as a multiset. Sums of doubles depend on the order of the rows, so doubles count to
    nine digits."""
    columns = [
        as_int(c).to_pylist() if pa.types.is_temporal(c.type) else c.to_pylist()
        for c in table.columns
    ]
    return Counter(repr([_plain(value) for value in row]) for row in zip(*columns, strict=True))


def _plain(value: Any) -> Any:
    return float(f"{value:.9g}") if isinstance(value, float) else value


def failure(run: Callable[[], object]) -> tuple[str, str | None, str]:
    """Class, condition and text of what it raises."""
    try:
        run()
    except PySparkException as error:
        return type(error).__name__, error.getCondition(), error.getMessage() or ""
    except Py4JJavaError as error:
        return type(error).__name__, None, str(error.java_exception)
    raise AssertionError("it did not fail")
