"""Queries of every shape that Spark has, over two small tables."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pyarrow as pa

_COLUMNS = [
    ("k", pa.int64()),
    ("g", pa.string()),
    ("n", pa.int32()),
    ("x", pa.float64()),
    ("d", pa.decimal128(10, 2)),
    ("ts", pa.timestamp("us", "UTC")),
    ("xs", pa.list_(pa.int32())),
    ("s", pa.struct([("a", pa.int32()), ("b", pa.string())])),
]
SCHEMAS: Mapping[str, pa.Schema] = {"a": pa.schema(_COLUMNS), "b": pa.schema(_COLUMNS)}
_DOUBLES = [0.0, -0.0, 1.5, -2.25, float("nan"), float("inf"), None]


def tables(seed: int, rows: int) -> dict[str, pa.Table]:
    dice = random.Random(seed)
    return {
        name: pa.Table.from_pylist([_row(dice, i) for i in range(rows)], schema)
        for name, schema in SCHEMAS.items()
    }


def _row(dice: random.Random, number: int) -> dict[str, object]:
    """`n` differs in all rows, so that it breaks ties."""
    key = dice.choice([*range(7), None])
    ts = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=dice.randint(0, 600))
    return {
        "k": key,
        "g": dice.choice(["red", "green", "", None]),
        "n": number,
        "x": dice.choice(_DOUBLES),
        "d": dice.choice([Decimal(dice.randint(-999, 999)) / 100, None]),
        "ts": ts,
        "xs": dice.choice([[1, None, 3], [], None, [dice.randint(0, 9)]]),
        "s": dice.choice([None, {"a": key, "b": "x"}]),
    }


QUERIES: Mapping[str, str] = {
    "filter": "SELECT k + 1 AS k1, upper(g) AS u, x * 2 AS y, d, ts, s.a FROM a WHERE n % 3 <> 0",
    "group": """SELECT g, count(*), sum(k), sum(d), avg(n), min(x), max(x), stddev(n)
        FROM a GROUP BY g""",
    "no group": "SELECT count(*), sum(n), max(ts) FROM a",
    "objects": """SELECT g, sort_array(collect_list(n)) AS l, percentile(n, 0.5) AS p,
        max_by(k, n) AS m, approx_count_distinct(k) AS c FROM a GROUP BY g""",
    "several distincts": """SELECT g, count(DISTINCT k), count(DISTINCT x), sum(DISTINCT n % 5),
        sum(n) FILTER (WHERE k > 2) AS f FROM a GROUP BY g""",
    "distinct": "SELECT DISTINCT k, x, s FROM a",
    "rollup": "SELECT g, k, sum(n) AS s, grouping_id() AS i FROM a GROUP BY ROLLUP (g, k)",
    "grouping sets": "SELECT g, k, count(*) FROM a GROUP BY GROUPING SETS ((g), (k), ())",
    "pivot": """SELECT * FROM (SELECT g, k, n FROM a)
        PIVOT (sum(n) FOR g IN ('red' AS r, 'green' AS gr))""",
    "windows": """SELECT n, row_number() OVER (PARTITION BY g ORDER BY n) AS r,
        lag(k, 2) OVER (PARTITION BY k ORDER BY n DESC) AS l,
        sum(n) OVER (PARTITION BY g ORDER BY n ROWS BETWEEN 3 PRECEDING AND 1 FOLLOWING) AS m,
        avg(n) OVER (ORDER BY ts RANGE BETWEEN INTERVAL 1 MINUTE PRECEDING AND CURRENT ROW) AS v
        FROM a""",
    "top": """SELECT g, n, k FROM (
        SELECT *, row_number() OVER (PARTITION BY g ORDER BY k DESC, n) AS r FROM a)
        WHERE r <= 3""",
    "joins": """SELECT a.n, b.n AS m, c.g FROM a JOIN b ON a.k = b.k AND a.n < b.n
        JOIN a c ON c.n = b.n + 1""",
    "left join": "SELECT a.n, b.n AS m FROM a LEFT JOIN b ON a.k = b.k AND b.x > 0",
    "right join": "SELECT a.n, b.n AS m FROM a RIGHT JOIN b ON a.x = b.x AND a.g = b.g",
    "full join": "SELECT a.n, b.n AS m FROM a FULL JOIN b ON a.n = b.n + 5 AND a.k = b.k",
    "full join on less": "SELECT a.n, b.n AS m FROM a FULL JOIN b ON a.n + 20 < b.n",
    "left join on less": "SELECT a.n, b.n AS m FROM a LEFT JOIN b ON a.n < b.n - 25",
    "cross join": "SELECT a.n * 1000 + b.n AS v FROM a CROSS JOIN b WHERE a.n % 7 = 0",
    "not in": "SELECT n FROM a WHERE k NOT IN (SELECT n FROM b WHERE n < 4)",
    "not in with nulls": "SELECT n FROM a WHERE k NOT IN (SELECT k FROM b)",
    "exists in or": """SELECT n FROM a
        WHERE n < 3 OR EXISTS (SELECT * FROM b WHERE b.k = a.k AND b.g = 'red')""",
    "correlated": "SELECT n, (SELECT max(b.n) FROM b WHERE b.k = a.k) AS m FROM a",
    "scalars": """SELECT n, (SELECT min(n) FROM b WHERE n > (SELECT avg(n) FROM a)) AS low,
        (SELECT g FROM b WHERE n = -1) AS nothing FROM a WHERE k < (SELECT max(k) FROM b)""",
    "explode": """SELECT n, p, v FROM a LATERAL VIEW OUTER posexplode(xs) AS p, v""",
    "sessions": """SELECT session_window(ts, '20 seconds') AS w, g, count(*) AS c
        FROM a GROUP BY session_window(ts, '20 seconds'), g""",
    "hops": """SELECT window(ts, '1 minute', '20 seconds').start AS w, sum(n) AS s
        FROM a GROUP BY window(ts, '1 minute', '20 seconds')""",
    "cte twice": """WITH t AS (SELECT k, sum(n) AS s FROM a GROUP BY k)
        SELECT t.k, u.s FROM t JOIN t AS u ON t.s <= u.s""",
    "except all": "SELECT k, g FROM a EXCEPT ALL SELECT k, g FROM b WHERE n % 2 = 0",
    "intersect all": "SELECT k, g FROM a INTERSECT ALL SELECT k, g FROM b",
    "except": "SELECT k, x FROM a EXCEPT SELECT k, x FROM b",
    "union": """SELECT n, 'a' AS t FROM a UNION ALL SELECT n, 'b' FROM b UNION ALL SELECT 0, 'c'
        ORDER BY n, t LIMIT 20 OFFSET 3""",
    "values": "SELECT a.n, v.t FROM a JOIN (VALUES (1, 'one'), (2, 'two')) v(i, t) ON a.k = v.i",
    "higher order": """SELECT n, transform(xs, e -> e + n) AS t,
        aggregate(xs, 0, (c, e) -> c + e) AS s,
        exists(xs, e -> e > 5) AS e FROM a""",
    "limit": "SELECT n FROM a ORDER BY x DESC NULLS LAST, n LIMIT 5",
    "nothing": "SELECT n FROM a WHERE 1 = 0",
    "hints": """SELECT /*+ BROADCAST(b), REPARTITION(3) */ a.n, b.n AS m
        FROM a JOIN b ON a.k = b.k""",
    "range": "SELECT r.id, count(a.n) AS c FROM range(5) r LEFT JOIN a ON a.k = r.id GROUP BY r.id",
    "lateral": """SELECT a.n, t.m FROM a, LATERAL (
        SELECT max(b.n) AS m FROM b WHERE b.k = a.k AND b.n <> a.n) t""",
    "in list": "SELECT n, k IN (SELECT k FROM b WHERE g = 'red') AS i FROM a",
}  # fmt: skip
