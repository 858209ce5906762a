"""The join's body: the same results with expressions in Spark."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from anabranch.plan.expressions import Expr
from anabranch.plan.operators import Condition, Item, Join, Projection, Selection
from anabranch.plan.windows import Range
from anabranch.site.body import Produced, Taken
from anabranch.site.join import JoinBody, SparkEvaluator
from anabranch.stream.batch import END_WATERMARK, START_WATERMARK, Batch
from tests.window.join_cases import Case, above, arrow, cases, equality, less, schedule, use
from tests.window.naive import Result, Tuple

pytestmark = pytest.mark.spark


def body(spark: SparkSession, case: Case) -> JoinBody:
    items = [Item(expr=Expr.of(a, "_pos"), name=f"p{a}", type="BIGINT") for a in case.held]
    columns = pa.schema([(item.name, pa.int64()) for item in items])
    return JoinBody(spark, case.inputs, [case.join, Projection(items=tuple(items))], columns)


def taken(tuples: Sequence[Tuple], schema: pa.Schema, last: int, watermark: int) -> Taken:
    """In batches of at most three."""
    batches = [
        Batch("s", tuples[n].pos, watermark, 0, piece)
        for n in range(0, len(tuples), 3)
        for piece in arrow(tuples[n : n + 3], schema).combine_chunks().to_batches()
    ]
    return Taken(batches, last, watermark)


def results(case: Case, produced: Produced) -> list[Result]:
    return [
        Result(row["_ts"], tuple(row[f"p{a}"] for a in case.held), row["_born"])
        for row in produced.table.to_pylist()
    ]


@settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))
@given(case=cases(), random=st.randoms(use_true_random=False))
def test_results_are_those_of_the_text(spark: SparkSession, case: Case, random: Random) -> None:
    join = body(spark, case)
    join.open(START_WATERMARK)
    found: list[Result] = []
    for tuples, last, watermarks in schedule(case, random, [0] * len(case.streams), 12):
        inputs = [
            taken(tuples[n], case.schema(n), last[n], watermarks[n]) for n in range(len(tuples))
        ]
        found += results(case, join.step(inputs))
    assert found == case.expected()


def _stream(name: str, first: int, ts: np.ndarray, **columns: np.ndarray) -> Batch[pa.RecordBatch]:
    data = pa.RecordBatch.from_pydict({**columns, "_ts": ts, "_born": ts})
    return Batch(name, first, END_WATERMARK, 0, data)


def test_very_many_results_are_in_order(spark: SparkSession) -> None:
    """More than one job's, and more than Spark sends in one batch."""
    rng = np.random.default_rng(1)
    ts = rng.permutation(700)
    columns = pa.schema([("v", pa.int64())])
    join = Join(
        windows=(Range(width_us=10_000), Range(width_us=10_000)),
        masters=(1,),
        conditions=(less(use("a", "v"), use("b", "v")).condition,),
        order=(use("a", "_pos"), use("b", "_pos")),
    )
    items = [("a", "_pos", "a"), ("b", "_pos", "b"), ("a", "v", "x"), ("b", "v", "y")]
    made = Projection(
        items=tuple(Item(expr=Expr.of(i, c), name=n, type="BIGINT") for i, c, n in items)
    )
    output = pa.schema([(name, pa.int64()) for _, _, name in items])
    joined = JoinBody(spark, [("a", columns), ("b", columns)], [join, made], output)
    joined.open()
    a, b = rng.integers(0, 10, 700), rng.integers(0, 10, 700)
    batches = [_stream(s, 1, ts, v=v) for s, v in (("a", a), ("b", b))]
    table = joined.step([Taken([batch], 700, END_WATERMARK) for batch in batches]).table

    rows = np.array([table.column(n).to_numpy() for n in ("_ts", "a", "b")])
    left, right = np.nonzero(a[:, None] < b[None, :])
    expected = np.array([np.maximum(ts[left], ts[right]), left + 1, right + 1])
    assert len(table) > 200_000
    assert (rows == expected[:, np.lexsort(expected[::-1])]).all()
    assert (table.column("x").to_numpy() == a[rows[1] - 1]).all()
    assert (table.column("y").to_numpy() == b[rows[2] - 1]).all()


def test_one_job_per_instance_and_none_without_candidates(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[int] = []
    for name in ("keep", "results"):
        plain = getattr(SparkEvaluator, name)

        def counted(self: SparkEvaluator, *args: object, plain=plain) -> object:
            jobs.append(len(args[0]))  # type: ignore[arg-type]
            return plain(self, *args)

        monkeypatch.setattr(SparkEvaluator, name, counted)
    values = [{"k": k, "f": None, "s": "x", "v": 1} for k in (1, 2, None, 4)]
    left = [Tuple(n, n, v) for n, v in enumerate(values, 1)]
    right = [Tuple(n, n, {**v, "k": (v["k"] or 0) + 2}) for n, v in enumerate(values, 1)]
    case = Case(
        [left, right],
        [Range(width_us=9), Range(width_us=9)],
        [0, 1],
        [equality(use("i0", "k"), use("i1", "k")), above(use("i0", "v"), 0)],
    )
    join = body(spark, case)
    join.open()
    jobs.clear()
    found: list[Result] = []
    for n in range(4):
        inputs = [taken(s[n : n + 1], case.schema(0), n + 1, n + 2) for s in case.streams]
        found += results(case, join.step(inputs))
    assert found == case.expected()
    assert len(found) == 2
    assert jobs == [1, 1]


def test_a_partial_join_gives_its_end_and_its_order(spark: SparkSession) -> None:
    columns = pa.schema([("v", pa.int64())])
    join = Join(
        windows=(Range(width_us=10), Range(width_us=4)),
        masters=(0, 1),
        order=(use("a", "_pos"), use("b", "_pos")),
        partial=True,
    )
    expr = Expr(pieces=("", " > 0"), uses=(use("b", "v"),))
    kept = Selection(condition=Condition(expr=expr))
    sums = Expr(pieces=("", " + ", ""), uses=(use("a", "v"), use("b", "v")))
    made = Projection(items=(Item(expr=sums, name="sum", type="BIGINT"),))
    names = ["sum", "_until", "_order.0", "_order.1"]
    output = pa.schema([(name, pa.int64()) for name in names])
    joined = JoinBody(spark, [("a", columns), ("b", columns)], [join, kept, made], output)
    joined.open()
    a = _stream("a", 5, np.array([3, 1]), v=np.array([10, 20]))
    b = _stream("b", 1, np.array([2, 4, 8]), v=np.array([1, 0, 2]))
    produced = joined.step([Taken([a], 6, END_WATERMARK), Taken([b], 3, END_WATERMARK)])
    assert produced.table.schema.names == [*names, "_ts", "_born"]
    assert [tuple(row.values()) for row in produced.table.to_pylist()] == [
        (21, 6, 6, 1, 2, 2),
        (11, 6, 5, 1, 3, 3),
        (12, 12, 5, 3, 8, 8),
        (22, 11, 6, 3, 8, 8),
    ]
    assert produced.needless == (6, 3)
    assert produced.instant == 8


def test_an_output_needs_no_column_at_all(spark: SparkSession) -> None:
    columns = pa.schema([("v", pa.int64())])
    join = Join(windows=(Range(width_us=5),), masters=(0,), order=(use("a", "_pos"),))
    made = Projection(items=(Item(expr=Expr(pieces=("1",)), name="one", type="INT"),))
    joined = JoinBody(spark, [("a", columns)], [join, made], pa.schema([("one", pa.int32())]))
    joined.open()
    a = _stream("a", 1, np.array([3, 1]), v=np.array([10, 20]))
    table = joined.step([Taken([a], 2, END_WATERMARK)]).table
    assert table.column("one").to_pylist() == [1, 1]
    assert table.column("_ts").to_pylist() == [1, 3]
