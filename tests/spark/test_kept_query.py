"""A kept query gives what a job gives: all of Spark's SQL, rows and errors, and nothing is left."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from anabranch.spark.failures import cause
from anabranch.spark.kept import program
from anabranch.spark.kept.kept_session import KeptSession
from anabranch.spark.kept.physical import Unfit
from anabranch.spark.kept.plan import KeptPlan
from anabranch.spark.kept.query import KeptQuery
from tests.spark import queries, tpch
from tests.spark.comparing import content, failure, job

NUMBERS = {"t": pa.schema([("k", pa.int64()), ("n", pa.int64())])}


def numbers(rows: int) -> dict[str, pa.Table]:
    return {"t": pa.table({"k": [i % 10 for i in range(rows)], "n": range(rows)}, NUMBERS["t"])}


@pytest.fixture(params=["interpreted", "compiled"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "compiled":
        monkeypatch.setattr(program, "INTERPRETED_BELOW", 0)
    return str(request.param)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("name", queries.QUERIES)
def test_any_query(spark: SparkSession, name: str) -> None:
    sql = queries.QUERIES[name]
    kept = KeptQuery(spark, queries.SCHEMAS, sql)
    for rows, seed in ((40, 1), (0, 2), (15, 3)):
        tables = queries.tables(seed, rows)
        ours, theirs = kept.evaluate(tables), job(spark, sql, tables)
        assert ours.schema.equals(theirs.schema)
        assert content(ours) == content(theirs)
    kept.close()


@pytest.mark.slow
@pytest.mark.parametrize("number", tpch.QUERIES)
def test_tpc_h(spark: SparkSession, number: int) -> None:
    sql = tpch.QUERIES[number]
    kept = KeptQuery(spark, tpch.SCHEMAS, sql)
    for seed in (1, 3):
        tables = tpch.tables(seed)
        ours, theirs = kept.evaluate(tables), job(spark, sql, tables)
        assert len(ours) > 0
        assert content(ours) == content(theirs)
    kept.close()


def test_rows_keep_their_order(spark: SparkSession) -> None:
    sql = "SELECT n FROM t ORDER BY k DESC, n"
    kept = KeptQuery(spark, NUMBERS, sql)
    tables = numbers(70_000)
    assert kept.evaluate(tables).equals(job(spark, sql, tables))
    kept.close()


def test_a_frame_may_be_built_in_python(spark: SparkSession) -> None:
    kept = KeptQuery(spark, NUMBERS, lambda frames: frames["t"].groupBy("k").count())
    assert kept.evaluate(numbers(95)).num_rows == 10
    kept.close()


FAILING = [
    "SELECT 1 DIV (n - 5) AS v FROM t",
    "SELECT CAST(concat('x', n) AS INT) AS v FROM t",
    "SELECT k, sum(CAST(n AS BIGINT) + 9223372036854775000) AS v FROM t GROUP BY k",
    "SELECT array(1, 2)[CAST(n AS INT)] AS v FROM t",
    "SELECT t.n FROM t JOIN t u ON t.n = u.n AND 1 DIV (u.n - 3) = 0",
    "SELECT sum(n) OVER (ORDER BY 1 DIV (n - 4)) AS v FROM t",
    "SELECT raise_error('no such thing') AS v FROM t",
    "SELECT CAST(n * 1000 AS TINYINT) AS v FROM t ORDER BY v",
]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("sql", FAILING)
def test_errors_are_the_job_s_and_the_next_evaluation_is_whole(
    spark: SparkSession, sql: str
) -> None:
    kept = KeptQuery(spark, NUMBERS, sql)
    tables = numbers(20)
    ours = failure(lambda: kept.evaluate(tables))
    assert ours == failure(lambda: job(spark, sql, tables))
    assert kept.evaluate(numbers(0)).num_rows == 0
    kept.close()


def test_a_scalar_subquery_of_several_rows_is_refused_as_by_a_job(spark: SparkSession) -> None:
    """(Of a job Python hears this one bare, as Java's.)"""
    sql = "SELECT n, (SELECT n FROM t WHERE n > 3) AS v FROM t"
    kept = KeptQuery(spark, NUMBERS, sql)
    with pytest.raises(PySparkException) as ours:
        kept.evaluate(numbers(20))
    assert "SCALAR_SUBQUERY_TOO_MANY_ROWS" in str(ours.value)
    with pytest.raises(Py4JJavaError) as theirs:
        job(spark, sql, numbers(20))
    assert cause(theirs.value) in str(ours.value)
    assert kept.evaluate(numbers(5)).column("v").to_pylist() == [4] * 5
    kept.close()


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("SELECT rand() AS v FROM t", "another value each time"),
        ("SELECT n FROM t WHERE n > (SELECT 10 * rand())", "another value each time"),
        ("SELECT uuid() AS v FROM t", "another value each time"),
        ("SELECT current_timestamp() AS v FROM t", "asks for the time"),
        ("SELECT n FROM t WHERE n > (SELECT unix_timestamp())", "asks for the time"),
        ("SELECT current_date AS v FROM t", "asks for the time"),
        ("SELECT now() AS v FROM t", "asks for the time"),
        ("SELECT current_user() AS v FROM t", "who runs it"),
        ("SELECT n FROM t TABLESAMPLE (50 PERCENT)", "Sample needs a job"),
    ],
)
def test_what_is_no_function_of_its_inputs_is_refused(
    spark: SparkSession, sql: str, why: str
) -> None:
    with pytest.raises(Unfit, match=why):
        KeptQuery(spark, NUMBERS, sql)


def test_other_data_of_spark_is_refused(spark: SparkSession) -> None:
    other = spark.createDataFrame([(1,)], "k bigint")
    with pytest.raises(Unfit, match="not its input"):
        KeptQuery(spark, NUMBERS, lambda frames: frames["t"].join(other, "k"))


def test_a_cross_join_is_interrupted_within_a_second(spark: SparkSession) -> None:
    kept = KeptQuery(spark, NUMBERS, "SELECT count(*) FROM t JOIN t u ON t.n * 7 < u.n % 3")
    errors: list[BaseException] = []

    def run() -> None:
        try:
            kept.evaluate(numbers(60_000))
        except PySparkException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(1.5)
    assert thread.is_alive()
    begun = time.monotonic()
    kept.interrupt()
    thread.join(30)
    assert time.monotonic() - begun < 1
    assert errors
    assert kept.evaluate(numbers(100)).num_rows == 1
    kept.close()


def test_one_that_is_abandoned_fails_at_once(spark: SparkSession) -> None:
    # Some seconds for a row: what nobody waits for is to end before the tests do.
    kept = KeptQuery(
        spark, NUMBERS, "SELECT max(concat(repeat('a', 29), n) rlike '^(.*a){12}$') FROM t"
    )
    errors: list[BaseException] = []

    def run() -> None:
        try:
            kept.evaluate(numbers(3))
        except EOFError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(1)
    kept.abandon()
    thread.join(1)
    assert errors
    with pytest.raises(Unfit, match="given up"):
        kept.evaluate(numbers(1))
    kept.close()


def test_four_threads_with_a_query_each(spark: SparkSession) -> None:
    sql = "SELECT k, sum(n) AS s FROM t WHERE k > {} GROUP BY k ORDER BY k"
    expected = [job(spark, sql.format(i), numbers(50)) for i in range(4)]
    found: list[bool] = []

    def run(number: int) -> None:
        kept = KeptQuery(spark, NUMBERS, sql.format(number))
        found.extend(kept.evaluate(numbers(50)).equals(expected[number]) for _ in range(100))
        kept.close()

    threads = [threading.Thread(target=partial(run, i)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 400


def test_more_than_the_memory_is_spilled(spark: SparkSession) -> None:
    """Of a task; what it may have of the heap is the same for all."""
    sql = "SELECT n, count(*) AS c FROM (SELECT n, k FROM t ORDER BY k, n) GROUP BY n ORDER BY n"
    kept = KeptQuery(spark, NUMBERS, sql)
    assert kept.evaluate(numbers(400_000)).column("c").to_pylist() == [1] * 400_000
    kept.close()


@pytest.fixture
def two(spark: SparkSession) -> Iterator[list[KeptQuery]]:
    made = [KeptQuery(spark, NUMBERS, "SELECT max(n) AS m FROM t") for _ in range(2)]
    yield made
    for kept in made:
        kept.close()


def test_queries_that_run_after_each_other_share_a_thread(
    spark: SparkSession, two: list[KeptQuery]
) -> None:
    first, second = two
    assert first.evaluate(numbers(5)).to_pylist() == [{"m": 4}]
    threads = kept_threads(spark)
    assert second.evaluate(numbers(5)).to_pylist() == [{"m": 4}]
    assert kept_threads(spark) == threads


def kept_threads(spark: SparkSession) -> list[str]:
    names = spark._jvm.java.lang.Thread.getAllStackTraces().keySet()  # type: ignore[union-attr]
    return sorted(str(one) for one in names if str(one).startswith("Thread[kept-"))


def test_a_spark_that_gives_something_else_is_found_out(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the first query is kept."""
    session = KeptSession.of(spark)
    monkeypatch.setattr(session, "tried", False)
    monkeypatch.setattr(session, "distrusted", "")
    monkeypatch.setattr("anabranch.spark.kept.query._TRIAL", "SELECT 1L AS k, 1L AS c, 8L AS m")
    with pytest.raises(Unfit, match="something else"):
        KeptQuery(spark, NUMBERS, "SELECT n FROM t")
    with pytest.raises(Unfit, match="something else"):
        KeptPlan(spark, NUMBERS["t"], lambda frame: frame.selectExpr("n + 1 AS m"))
