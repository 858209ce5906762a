"""Kept queries and jobs agree on any content of any type."""

from __future__ import annotations

from functools import cache
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from anabranch.spark.kept.query import KeptQuery
from tests.site.test_kept_exact import NAMES, rows, schema
from tests.spark.comparing import content, job

GROUPED = [name for type_, name in NAMES.items() if not type_.startswith("map")]
EACH = ", ".join(NAMES.values())
QUERIES = [
    f"SELECT {', '.join(GROUPED)}, count(*) AS n FROM t GROUP BY {', '.join(GROUPED)}",
    f"SELECT {', '.join(f'count(DISTINCT {name}), max({name})' for name in GROUPED)} FROM t",
    f"SELECT {EACH}, rank() OVER (PARTITION BY a, b ORDER BY j, e, f, m) AS r FROM t ",
    f"SELECT {EACH} FROM t UNION ALL SELECT {EACH} FROM u ORDER BY {', '.join(GROUPED)}",
    f"SELECT {', '.join(GROUPED)} FROM t EXCEPT ALL SELECT {', '.join(GROUPED)} FROM u",
    *(
        f"SELECT t.{name} AS x, u.{name} AS y, u.r AS z FROM t FULL JOIN u ON t.{name} = u.{name}"
        for name in GROUPED
    ),
]


@cache
def kept(spark: SparkSession, sql: str) -> KeptQuery:
    return KeptQuery(spark, {"t": schema(), "u": schema()}, sql)


@pytest.mark.slow
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.sampled_from(QUERIES), rows, rows)
def test_any_values_of_any_type(
    spark: SparkSession, sql: str, some: list[dict[str, Any]], others: list[dict[str, Any]]
) -> None:
    """What both have is in both, too."""
    tables = {
        "t": pa.Table.from_pylist(some + others[:2], schema()),
        "u": pa.Table.from_pylist(others + some[:2], schema()),
    }
    ours, theirs = kept(spark, sql).evaluate(tables), job(spark, sql, tables)
    assert ours.schema.to_string(show_field_metadata=False) == theirs.schema.to_string(
        show_field_metadata=False
    )
    assert content(ours) == content(theirs)
