"""Queries that each rule has something to do with, over streams at two rooms and a centre."""

from __future__ import annotations

import random

import pyarrow as pa

from anabranch.link.wire import wire_schema
from anabranch.plan.catalog import AnyDef, QueryDef, Relation
from anabranch.spark.session import arrow_schema
from tests.language.fakes import bind, define
from tests.plan.rules.execute import Stream, cut

STREAMS = """
CREATE STREAM A (k INT, v DOUBLE, s STRING) FROM f() AT room1;
CREATE STREAM B (k INT, v DOUBLE, s STRING) FROM f() AT room1;
CREATE STREAM C (k INT, v DOUBLE, s STRING) FROM f() AT room2
"""
KNOWN: dict[str, AnyDef] = {one.name: one for one in define(STREAMS)}
QUERIES = {
    "selection_elsewhere": "SELECT v FROM A WHERE v > 2 AND s LIKE 'x%' AT centre",
    "selection_here": "SELECT v FROM A WHERE v > 2",
    "time_windows": (
        "MASTER C SELECT A.v, C.v AS cv FROM A[5us], C[3us] WHERE A.v > 1 AND C.v < 4 AND A.k = C.k"
        " AT centre"
    ),
    "masters_that_fail": (
        "MASTER A, C SELECT A.v, C.v AS cv FROM A[5us], C[4us] WHERE A.v > 2 AND C.v > 2 AT centre"
    ),
    "rows_stay": (
        "SELECT A.v, C.v AS cv FROM A[2 ROWS], C[3us] WHERE A.v > 1 AND A.k = C.k AT room2"
    ),
    "unsafe_stays": "SELECT A.v, C.v AS cv FROM A[5us], C[3us] WHERE 1 / A.k > 0 AND A.k = C.k",
    "joined_near": (
        "MASTER C SELECT A.v, B.v AS bv, C.v AS cv FROM A[6us], B[4us], C[5us]"
        " WHERE A.k = B.k AND C.v < A.v AT centre"
    ),
    "joined_near_master_inside": (
        "MASTER B SELECT A.v, B.s, C.v AS cv FROM C[5us], A[6us], B[4us]"
        " WHERE A.k = B.k AND A.v > 1 AND C.k = A.k AT centre"
    ),
    "computed": (
        "MASTER C SELECT A.v, B.v AS bv, C.v AS cv FROM A[6us], B[4us], C[5us]"
        " WHERE A.k = B.k AND A.v + 1 = C.v * 2 AT centre"
    ),
    "all_joined_near": (
        "SELECT A.v, B.v AS bv, A._ts AS t FROM A[6us], B[4us] WHERE A.v < B.v AT room2"
    ),
    "aggregate_elsewhere": (
        "SELECT k, COUNT(*) AS n, MAX(v) AS m FROM A[6us SLIDE 2us] WHERE v > 1 GROUP BY k"
        " HAVING COUNT(*) > 1 AT centre"
    ),
    "aggregate_here": "SELECT COUNT(v) AS n, SUM(v) AS s FROM A[4us] WHERE s LIKE 'x%'",
    "rows_aggregate": "SELECT k, SUM(v) AS s FROM A[5 ROWS SLIDE 3 ROWS] GROUP BY k AT room2",
    "self_join": (
        "SELECT x.v, y.v AS yv FROM A[4us] x, A[6us] y WHERE x.v > 2 AND y.v > 2 AND x.k = y.k"
        " AT centre"
    ),
}


def lookup(name: str) -> Relation:
    found = KNOWN[name]
    assert found.kind == "stream"
    return found


def query(name: str) -> QueryDef:
    known = {one.name.lower(): one for one in KNOWN.values()}
    return bind(f"CREATE QUERY q AS {QUERIES[name]}", lookup=lambda one: known.get(one.lower()))


def schemas() -> dict[str, pa.Schema]:
    return {name: arrow_schema(lookup(name).columns) for name in KNOWN}


def random_streams(rng: random.Random) -> dict[str, Stream]:
    return {name: cut(_table(schema, rng), 3, rng) for name, schema in schemas().items()}


def _table(columns: pa.Schema, rng: random.Random) -> pa.Table:
    """Up to 40 tuples, up to 3 µs out of order, with equal times and NULLs."""
    rows, now = [], 0
    for position in range(rng.randint(0, 40)):
        now += rng.choice([0, 0, 1, 1, 2, 7])
        rows.append(
            {
                "k": rng.choice([None, 1, 2, 3]),
                "v": rng.choice([None, *map(float, range(6))]),
                "s": rng.choice([None, "x1", "x2", "y"]),
                "_ts": now - rng.randint(0, 3),
                "_born": position,
            }
        )
    return pa.Table.from_pylist(rows, wire_schema(columns))
