"""The join's body: the same results with expressions in Spark."""

from __future__ import annotations

import time
from collections.abc import Sequence
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark import InheritableThread
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from anabranch.plan.expressions import Expr
from anabranch.plan.operators import Condition, Equality, Item, Join, Projection, Selection
from anabranch.plan.windows import Range
from anabranch.site.tasks.body import Produced, Taken
from anabranch.site.tasks.join import JoinBody, SparkEvaluator
from anabranch.spark.jobs import SparkJobs
from anabranch.spark.kept.expressions import Expressions, Mode
from anabranch.stream.batch import END_WATERMARK, START_WATERMARK, Batch
from tests.window.join_cases import Case, above, arrow, cases, equality, less, schedule, use
from tests.window.naive import Result, Tuple

pytestmark = pytest.mark.spark


def body(spark: SparkSession, case: Case) -> JoinBody:
    items = [Item(expr=Expr.of(a, "_pos"), name=f"p{a}", type="BIGINT") for a in case.held]
    columns = pa.schema([(item.name, pa.int64()) for item in items])
    return JoinBody(
        Expressions(spark), case.inputs, [case.join, Projection(items=tuple(items))], columns
    )


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
    joined = JoinBody(Expressions(spark), [("a", columns), ("b", columns)], [join, made], output)
    joined.open()
    a, b = rng.integers(0, 10, 700), rng.integers(0, 10, 700)
    batches = [_stream(s, 1, ts, v=v) for s, v in (("a", a), ("b", b))]
    steps = [joined.step([Taken([batch], 700, END_WATERMARK) for batch in batches])]
    while steps[-1].more:
        steps.append(joined.step([Taken([], 700, END_WATERMARK)] * 2))
    table = pa.concat_tables([step.table for step in steps])

    assert len(steps) > 1
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
    joined = JoinBody(
        Expressions(spark), [("a", columns), ("b", columns)], [join, kept, made], output
    )
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
    joined = JoinBody(
        Expressions(spark), [("a", columns)], [join, made], pa.schema([("one", pa.int32())])
    )
    joined.open()
    a = _stream("a", 1, np.array([3, 1]), v=np.array([10, 20]))
    table = joined.step([Taken([a], 2, END_WATERMARK)]).table
    assert table.column("one").to_pylist() == [1, 1]
    assert table.column("_ts").to_pylist() == [1, 3]


def busy(spark: SparkSession) -> bool:
    """A kept plan is evaluating."""
    traces = spark._jvm.java.lang.Thread.getAllStackTraces()  # type: ignore[union-attr]
    kept = [one for one in traces if one.getName().startswith("kept-")]
    return any("repeat" in str(frame) for one in kept for frame in traces[one])


@pytest.mark.parametrize("mode", ["kept", "job"])
def test_a_step_that_is_stopped_ends_while_spark_is_at_it(spark: SparkSession, mode: Mode) -> None:
    """A product, and a condition that takes Spark long: interrupted, or its jobs are cancelled."""
    slow = Expr(
        pieces=("length(repeat(CAST(", " AS STRING), 20000)) < ", ""),
        uses=(use("a", "v"), use("b", "v")),
    )
    columns = pa.schema([("v", pa.int64())])
    join = Join(
        windows=(Range(width_us=10_000), Range(width_us=10_000)),
        masters=(0,),
        conditions=(Condition(expr=slow),),
        order=(use("a", "_pos"), use("b", "_pos")),
    )
    made = Projection(items=(Item(expr=Expr.of("a", "v"), name="v", type="BIGINT"),))
    body = JoinBody(
        Expressions(spark, mode), [("a", columns), ("b", columns)], [join, made], columns
    )
    jobs = SparkJobs(spark, "slow", per_instance=True)
    numbers = np.arange(1, 401)
    taken = [Taken([_stream(name, 1, numbers, v=numbers)], 400, END_WATERMARK) for name in "ab"]
    failed: list[Exception] = []

    def step() -> None:
        jobs.begin("slow")
        try:
            body.step(taken)
        except Exception as error:
            failed.append(error)

    running = InheritableThread(target=step)
    running.start()
    tracker = spark.sparkContext.statusTracker()
    while not (tracker.getActiveJobsIds() if mode == "job" else busy(spark)):
        assert running.is_alive()
        time.sleep(0.05)
    body.interrupt()
    jobs.cancel()
    running.join(60)
    assert not running.is_alive()
    assert len(failed) == 1
    body.close()
    assert not tracker.getActiveJobsIds()


def _keyed(number: int, texts: Sequence[str], guard: str = "") -> Join:
    """Inputs a and b where `a`'s expression equals `b`'s; `guard` is asked of a before."""
    left, right = (
        Expr(pieces=tuple(text.split("?")), uses=(use(alias, "v"),))
        for alias, text in zip("ab", texts, strict=True)
    )
    both = Expr(
        pieces=(left.pieces[0], f"{left.pieces[1]} = {right.pieces[0]}", right.pieces[1]),
        uses=(*left.uses, *right.uses),
    )
    first = Condition(expr=Expr(pieces=tuple(guard.split("?")), uses=(use("a", "v"),)))
    equality = Condition(expr=both, computed=Equality(sides=(left, right), type="bigint"))
    return Join(
        windows=(Range(width_us=number), Range(width_us=number)),
        masters=(0, 1),
        conditions=(*([first] if guard else []), equality),
        order=(use("a", "_pos"), use("b", "_pos")),
    )


def _pairs(
    spark: SparkSession, join: Join, streams: Sequence[np.ndarray], cuts: int
) -> tuple[list[tuple[int, int]], int]:
    """What comes out of two streams, each in so many pieces, and how many candidates there were."""
    columns = pa.schema([("v", pa.int64())])
    items = [("a", "v", "x"), ("b", "v", "y")]
    made = Projection(
        items=tuple(Item(expr=Expr.of(i, c), name=n, type="BIGINT") for i, c, n in items)
    )
    output = pa.schema([(name, pa.int64()) for _, _, name in items])
    body = JoinBody(Expressions(spark), [("a", columns), ("b", columns)], [join, made], output)
    candidates = 0
    plain = body._evaluator.results

    def counted(table: pa.Table) -> pa.Table:
        nonlocal candidates
        candidates += len(table)
        return plain(table)

    body.open()
    body._evaluator.results = counted  # type: ignore[method-assign]
    found: list[tuple[int, int]] = []
    length = len(streams[0])
    for n in range(cuts):
        low, high = n * length // cuts, (n + 1) * length // cuts
        ts = np.arange(low, high)
        watermark = END_WATERMARK if high == length else high
        taken = [
            Taken([_stream("s", low + 1, ts, v=values[low:high])], high, watermark)
            for values in streams
        ]
        table = body.step(taken).table
        found += zip(table.column("x").to_pylist(), table.column("y").to_pylist(), strict=True)
    return found, candidates


def test_an_equality_of_expressions_is_looked_up(spark: SparkSession) -> None:
    rng = np.random.default_rng(2)
    streams = [rng.integers(0, 1000, 300), rng.integers(0, 50, 300)]
    join = _keyed(1000, ("mod(?, 50)", "? + 0"))
    found, candidates = _pairs(spark, join, streams, 7)
    expected = [(int(x), int(y)) for x in streams[0] for y in streams[1] if x % 50 == y]
    assert sorted(found) == sorted(expected)
    assert candidates == len(expected)


def test_a_key_that_fails_where_it_is_never_asked(spark: SparkSession) -> None:
    """A tuple with 0 is kept away by the condition before; others are found without the index."""
    streams = [np.array([4, 5, 0, 2, 3, 1]), np.array([30, 12, 60, 20, 15, 1])]
    join = _keyed(1000, ("60 DIV ?", "?"), guard="? <> 0")
    found, candidates = _pairs(spark, join, streams, 3)
    assert sorted(found) == [(1, 60), (2, 30), (3, 20), (4, 15), (5, 12)]
    assert candidates > 5


def test_a_key_that_fails_where_it_is_asked(spark: SparkSession) -> None:
    streams = [np.array([4, 0]), np.array([30, 12])]
    with pytest.raises(PySparkException, match="DIVIDE_BY_ZERO"):
        _pairs(spark, _keyed(1000, ("60 DIV ?", "?")), streams, 1)
    apart = _keyed(1, ("60 DIV ?", "?"))
    with pytest.raises(PySparkException, match="DIVIDE_BY_ZERO"):
        _pairs(spark, apart, streams, 2)
