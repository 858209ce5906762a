"""The universal operator on kept queries: after random changes, the result of Spark's own job on
the whole content."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from anabranch.changes.universal import KeyedInput, RowWise, Universal
from anabranch.spark.kept.query import KeptQuery
from tests.changes.histories import History, Result, Row
from tests.spark import tpch
from tests.spark.comparing import content, job

COLUMNS = [
    ("k", pa.int64()),
    ("g", pa.string()),
    ("n", pa.int64()),
    ("x", pa.float64()),
    ("ts", pa.timestamp("us", "UTC")),
    ("l", pa.list_(pa.int32())),
]
SCHEMAS = {name: pa.schema(COLUMNS) for name in ("a", "b")}
KEYED = {
    "group": """SELECT k, sum(n) AS s, max(x) AS m, count(DISTINCT n) AS c,
        percentile(n, 0.5) AS p, sort_array(collect_list(n)) AS l FROM a GROUP BY k""",
    "left join": "SELECT a.k, a.n, b.x, b.l FROM a LEFT JOIN b ON a.k = b.k AND b.n > 20",
    "full join": "SELECT a.n, b.n AS m, a.l FROM a FULL JOIN b ON a.k = b.k AND a.n < b.n",
    "top 3": """SELECT k, n, x FROM (SELECT *, rank() OVER (PARTITION BY k ORDER BY x DESC, n) AS r
        FROM a) WHERE r <= 3""",
    "running": "SELECT k, n, sum(n) OVER (PARTITION BY k ORDER BY ts, n, g) AS s FROM a",
    "sessions": """SELECT k, session_window(ts, '9 seconds') AS w, count(*) AS c, max(n) AS m
        FROM a GROUP BY k, session_window(ts, '9 seconds')""",
    "not exists": "SELECT * FROM a WHERE NOT EXISTS (SELECT * FROM b WHERE b.k = a.k AND b.x > 0)",
    "correlated": "SELECT k, n, (SELECT max(b.n) FROM b WHERE b.k = a.k) AS m FROM a",
    "intersect all": """SELECT k, n % 3 AS r FROM a INTERSECT ALL SELECT k, n % 3 FROM b""",
}
TOGETHER = {
    "no group": "SELECT count(*) AS c, sum(n) AS s, max(l) AS l FROM a",
    "limit": "SELECT n, x FROM a ORDER BY n DESC, x, k, g, ts LIMIT 5",
    "not in": "SELECT a.n FROM a WHERE a.n NOT IN (SELECT b.n FROM b WHERE b.k > 3)",
}


def row(dice: random.Random, name: str) -> Row:
    return {
        "k": dice.choice([*range(9), None]),
        "g": dice.choice(["red", "", None]),
        "n": dice.randint(0, 40),
        "x": dice.choice([0.0, -0.0, 1.5, float("nan"), None]),
        "ts": datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=dice.randint(0, 90)),
        "l": dice.choice([[1, None], [], None]),
    }


def follow(spark: SparkSession, sql: str, operator: Universal | RowWise, history: History) -> None:
    result = Result()
    if isinstance(operator, Universal):
        result.add(operator.begin())
    for inserted, deleted in ((60, 0), (5, 3), (2, 20), (30, 30)):
        result.add(operator.step(history.batch(inserted, deleted)))
        assert result.content == content(job(spark, sql, history.tables))
    result.add(operator.step(history.clear()))
    assert result.content == content(job(spark, sql, history.tables))


@pytest.mark.parametrize("name", KEYED | TOGETHER)
def test_it_is_spark_s_result_of_the_whole_content(spark: SparkSession, name: str) -> None:
    sql = (KEYED | TOGETHER)[name]
    kept = KeptQuery(spark, SCHEMAS, sql)
    key = ("k",) if name in KEYED else ()
    inputs = {one: KeyedInput(schema, key) for one, schema in SCHEMAS.items()}
    follow(spark, sql, Universal(inputs, kept.evaluate), History(11, SCHEMAS, row))
    kept.close()


def test_row_by_row(spark: SparkSession) -> None:
    sql = "SELECT k, explode(l) AS i FROM a WHERE x IS NOT NULL"
    schemas = {"a": SCHEMAS["a"]}
    kept = KeptQuery(spark, schemas, sql)
    follow(spark, sql, RowWise("a", kept.evaluate), History(12, schemas, row))
    kept.close()


@pytest.mark.slow
@pytest.mark.parametrize("number", [4, 12, 13, 18, 21])
def test_stages_of_tpc_h_by_order(spark: SparkSession, number: int) -> None:
    """Of lines and orders; what else these queries have is taken off them."""
    sql = BY_ORDER[number]
    tables = tpch.tables(3)
    schemas = {name: tpch.SCHEMAS[name] for name in ("orders", "lineitem")}
    kept = KeptQuery(spark, schemas, sql)
    keys = {"orders": ("o_orderkey",), "lineitem": ("l_orderkey",)}
    inputs = {name: KeyedInput(schema, keys[name]) for name, schema in schemas.items()}

    def one(dice: random.Random, name: str) -> Row:
        given: Row = dice.choice(tables[name].to_pylist())
        return given

    follow(spark, sql, Universal(inputs, kept.evaluate), History(number, schemas, one))
    kept.close()


BY_ORDER = {
    4: """SELECT o_orderkey, o_orderpriority FROM orders WHERE EXISTS (
        SELECT * FROM lineitem WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate)""",
    12: """SELECT o_orderkey, l_shipmode, o_orderpriority FROM orders, lineitem
        WHERE o_orderkey = l_orderkey AND l_shipmode IN ('MAIL', 'SHIP')
        AND l_commitdate < l_receiptdate""",
    13: """SELECT o_orderkey, count(l_linenumber) AS c FROM orders
        LEFT JOIN lineitem ON l_orderkey = o_orderkey GROUP BY o_orderkey""",
    18: """SELECT o_orderkey, o_totalprice, sum(l_quantity) AS q FROM orders, lineitem
        WHERE o_orderkey = l_orderkey AND o_orderkey IN (
          SELECT l_orderkey FROM lineitem GROUP BY l_orderkey HAVING sum(l_quantity) > 60)
        GROUP BY o_orderkey, o_totalprice""",
    21: """SELECT l1.l_suppkey, l1.l_orderkey FROM lineitem l1, orders
        WHERE o_orderkey = l1.l_orderkey AND l1.l_receiptdate > l1.l_commitdate
        AND EXISTS (SELECT * FROM lineitem l2
          WHERE l2.l_orderkey = l1.l_orderkey AND l2.l_suppkey <> l1.l_suppkey)
        AND NOT EXISTS (SELECT * FROM lineitem l3 WHERE l3.l_orderkey = l1.l_orderkey
          AND l3.l_suppkey <> l1.l_suppkey AND l3.l_receiptdate > l3.l_commitdate)""",
}
