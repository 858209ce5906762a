"""A kept plan gives what the job gives, rows and errors, and leaves nothing behind."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from anabranch.spark.kept.expressions import Expressions
from anabranch.spark.kept.physical import Unfit
from anabranch.spark.kept.plan import Build, KeptPlan

NUMBERS = pa.schema([("n", pa.int64()), ("x", pa.float64()), ("s", pa.string())])


def numbers(rows: int) -> pa.Table:
    values = {"n": range(rows), "x": [i / 3 for i in range(rows)], "s": ["é"] * rows}
    return pa.table(values, schema=NUMBERS)


def selection(frame: DataFrame) -> DataFrame:
    return frame.where("n % 3 = 0").selectExpr("n + 1 AS m", "upper(s) AS s", "x / 2 AS half")


def job(spark: SparkSession, table: pa.Table, build: Build) -> pa.Table:
    return build(spark.createDataFrame(table)).toArrow()


@pytest.fixture
def kept(spark: SparkSession) -> Iterator[KeptPlan]:
    plan = KeptPlan(spark, NUMBERS, selection)
    yield plan
    plan.close()


@pytest.mark.parametrize("rows", [0, 1, 1_000, 65_536, 200_001])
def test_it_gives_the_rows_of_the_job(spark: SparkSession, kept: KeptPlan, rows: int) -> None:
    table = numbers(rows)
    assert kept(table).equals(job(spark, table, selection))


def test_many_small_batches_are_few_requests(spark: SparkSession, kept: KeptPlan) -> None:
    pieces = pa.concat_tables([numbers(10).slice(i % 10, 1) for i in range(500)])
    assert kept(pieces).equals(job(spark, pieces.combine_chunks(), selection))


def test_an_error_in_the_middle_is_the_job_s_and_the_next_instance_is_whole(
    spark: SparkSession,
) -> None:
    def divided(frame: DataFrame) -> DataFrame:
        return frame.selectExpr("100 DIV (n - 150000) AS q")

    kept = KeptPlan(spark, NUMBERS, divided)
    for _ in range(2):
        with pytest.raises(PySparkException) as ours:
            kept(numbers(200_001))
        with pytest.raises(PySparkException) as theirs:
            job(spark, numbers(200_001), divided)
        assert type(ours.value) is type(theirs.value)
        assert ours.value.getMessage() == theirs.value.getMessage()
        assert kept(numbers(70_000)).equals(job(spark, numbers(70_000), divided))
    kept.close()


def arrow_bytes(spark: SparkSession) -> int:
    utils = getattr(spark._jvm.org.apache.spark.sql.util, "ArrowUtils$")  # type: ignore[union-attr]
    return int(getattr(utils, "MODULE$").rootAllocator().getAllocatedMemory())


def test_arrow_memory_is_given_back_after_results_and_after_errors(
    spark: SparkSession, kept: KeptPlan
) -> None:
    before = arrow_bytes(spark)
    failing = KeptPlan(spark, NUMBERS, lambda frame: frame.selectExpr("1 DIV (n - 5) AS q"))
    for _ in range(20):
        kept(numbers(5_000))
        with pytest.raises(PySparkException):
            failing(numbers(5_000))
    assert arrow_bytes(spark) == before
    failing.close()


@pytest.fixture
def apart(spark: SparkSession) -> Iterator[None]:
    """With other settings, plans share nothing with those that other tests have left open."""
    spark.conf.set("spark.apart", "true")
    yield
    spark.conf.unset("spark.apart")


@pytest.mark.usefixtures("apart")
def test_it_leaves_no_thread_in_the_jvm(spark: SparkSession) -> None:
    def threads() -> int:
        names = spark._jvm.java.lang.Thread.getAllStackTraces().keySet()  # type: ignore[union-attr]
        return sum(str(one).startswith("Thread[kept-") for one in names)

    before = threads()
    plan = KeptPlan(spark, NUMBERS, selection)
    plan(numbers(3))
    assert threads() == before + 1
    plan.close()
    for _ in range(100):
        if threads() == before:
            break
        threading.Event().wait(0.1)
    assert threads() == before


def test_what_needs_a_job_says_so(spark: SparkSession) -> None:
    with pytest.raises(Unfit, match="Sample needs a job"):
        KeptPlan(spark, NUMBERS, lambda frame: frame.sample(0.5, seed=3))
    with pytest.raises(Unfit, match="MapInArrow needs a job"):
        KeptPlan(spark, NUMBERS, lambda frame: frame.mapInArrow(lambda rows: rows, "n bigint"))


@pytest.mark.parametrize("rows", [0, 7, 200_001])
def test_what_is_computed_of_all_rows_sees_all_of_them(spark: SparkSession, rows: int) -> None:
    """However many batches they come in."""

    def build(frame: DataFrame) -> DataFrame:
        return frame.groupBy("s").agg({"n": "sum", "x": "max"}).orderBy("s")

    plan = KeptPlan(spark, NUMBERS, build)
    assert plan(numbers(rows)).equals(job(spark, numbers(rows), build))
    plan.close()


def test_a_condition_that_is_never_true_gives_nothing(spark: SparkSession) -> None:
    plan = KeptPlan(spark, NUMBERS, lambda frame: frame.where("1 = 0").selectExpr("n + 1 AS m"))
    assert plan(numbers(3)).to_pylist() == []
    plan.close()


def test_what_depends_on_chance_runs_as_jobs(spark: SparkSession) -> None:
    with pytest.raises(Unfit, match="another value each time"):
        KeptPlan(spark, NUMBERS, lambda frame: frame.selectExpr("n + rand(7) AS r"))


@pytest.mark.parametrize(
    ("where", "wanted", "sent", "computed"),
    [
        ("", ["x + 1 AS y"], ["x"], ["y"]),
        ("", ["n", "s AS t", "x + 1 AS y"], ["x"], ["y"]),
        ("", ["1 AS one"], ["n"], ["one"]),
        ("", ["*"], ["n"], []),
        ("", ["n", "n AS again", "upper(s) AS n"], ["s"], ["n"]),
        ("x > 1", ["s", "x"], ["x", "s"], ["s", "x"]),  # no column whose place numbers could take
        ("x > 1", ["*"], ["n", "x"], ["n"]),  # row numbers come back in the place of n
        ("x > 1", ["n", "n AS again", "upper(s) AS n"], ["n", "x", "s"], ["n", "n"]),
        ("n > 3", ["n", "s"], ["n", "s"], ["n", "s"]),
        ("n < 0", ["*"], ["n", "x", "s"], ["n", "x", "s"]),
    ],
)
def test_columns_that_are_not_computed_are_not_sent(
    spark: SparkSession, where: str, wanted: list[str], sent: list[str], computed: list[str]
) -> None:
    def build(frame: DataFrame) -> DataFrame:
        return (frame.where(where) if where else frame).selectExpr(*wanted)

    plan = KeptPlan(spark, NUMBERS, build)
    assert plan._used == sent
    travels = [f.name for i, f in enumerate(plan._output) if plan._carried.travels(i)]
    assert travels == computed
    for rows in (0, 1, 9, 70_000):
        ours = plan(numbers(rows))
        theirs = job(spark, numbers(rows), build)
        assert ours.schema.equals(theirs.schema)
        assert ours.equals(theirs)
    plan.close()


def test_expressions_that_do_not_fit_run_as_jobs(spark: SparkSession) -> None:
    named: list[int] = []
    expressions = Expressions(spark, name_job=named.append)
    evaluate = expressions.evaluation(NUMBERS, lambda frame: frame.sample(1.0, seed=3))
    assert evaluate(numbers(7)).equals(numbers(7))
    assert named == [7]
    assert "Sample" in evaluate.unfit
    expressions.close()


def test_a_spark_with_another_inside_runs_jobs_and_one_line_says_so(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def other(*given: object) -> None:
        raise TypeError("'JavaPackage' object is not callable")

    monkeypatch.setattr("anabranch.spark.kept.plan.prepared", other)
    expressions = Expressions(spark)
    for _ in range(2):
        evaluate = expressions.evaluation(NUMBERS, selection)
        assert evaluate(numbers(10)).equals(job(spark, numbers(10), selection))
        assert evaluate.report().plan == "job"
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("mode", ["kept", "job", "auto"])
def test_modes_give_the_same(spark: SparkSession, mode: str) -> None:
    named: list[int] = []
    expressions = Expressions(spark, mode, named.append)  # type: ignore[arg-type]
    evaluate = expressions.evaluation(NUMBERS, selection)
    assert evaluate(numbers(100)).equals(job(spark, numbers(100), selection))
    assert bool(named) == (mode == "job")
    expressions.close()


@pytest.mark.usefixtures("apart")
def test_a_stranger_who_connects_first_is_turned_away(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = socket.create_server
    strangers = []

    def watched(address: tuple[str, int]) -> socket.socket:
        listener = real(address)
        stranger = socket.create_connection(listener.getsockname())
        stranger.sendall(b"x" * 64)
        strangers.append(stranger)
        return listener

    monkeypatch.setattr(socket, "create_server", watched)
    plan = KeptPlan(spark, NUMBERS, selection)
    assert plan(numbers(10)).equals(job(spark, numbers(10), selection))
    assert strangers
    plan.close()
