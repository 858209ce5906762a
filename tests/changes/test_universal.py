"""The universal operator alone, with DuckDB to evaluate: results are those of the whole content."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from functools import cache

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.changes.change import DELETE, INSERT, OP, changes, difference
from anabranch.changes.universal import Evaluate, KeyedInput, RowWise, Universal
from anabranch.errors import TaskError
from tests.changes.histories import History, Result, Row
from tests.spark.comparing import content

A = pa.schema([("k", pa.int64()), ("g", pa.string()), ("n", pa.int64())])
B = pa.schema([("k", pa.int64()), ("m", pa.int64())])
SCHEMAS = {"a": A, "b": B}
KEYED = {
    "group": "SELECT k, g, sum(n)::BIGINT AS s, count(*) AS c, max(n) AS m FROM a GROUP BY k, g",
    "left join": "SELECT a.k, g, n, m FROM a LEFT JOIN b ON a.k = b.k AND m > 2",
    "full join": "SELECT a.n, b.m FROM a FULL JOIN b ON a.k = b.k",
    "anti join": "SELECT * FROM a WHERE NOT EXISTS (SELECT * FROM b WHERE b.k = a.k)",
    "top": """SELECT k, n FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY n, g) AS r
        FROM a) WHERE r <= 2""",
    "distinct": "SELECT DISTINCT k FROM a",
}


def by_duckdb(sql: str) -> Evaluate:
    def evaluate(tables: Mapping[str, pa.Table]) -> pa.Table:
        for name, table in tables.items():
            database().register(name, table)
        return database().sql(sql).to_arrow_table()

    return evaluate


@cache
def database() -> duckdb.DuckDBPyConnection:
    """In one thread, so that the same rows give the same in the same order."""
    return duckdb.connect(config={"threads": 1})


def row(dice: random.Random, name: str) -> Row:
    key = dice.choice([*range(6), None])
    if name == "b":
        return {"k": key, "m": dice.randint(0, 5)}
    return {"k": key, "g": dice.choice(["x", "y", None]), "n": dice.randint(0, 3)}


def follow(
    operator: Universal, evaluate: Evaluate, history: History, sizes: list[tuple[int, int]]
) -> None:
    """After each batch the changes so far have led to the result of the whole content."""
    result = Result()
    result.add(operator.begin())
    for inserted, deleted in sizes:
        result.add(operator.step(history.batch(inserted, deleted)))
        assert result.content == content(evaluate(history.tables))
    result.add(operator.step(history.clear()))
    assert result.content == content(evaluate(history.tables))
    assert len(operator) == 0


sizes = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 10)), max_size=6)


@pytest.mark.parametrize("name", KEYED)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), sizes=sizes)
def test_any_query_by_key(name: str, seed: int, sizes: list[tuple[int, int]]) -> None:
    evaluate = by_duckdb(KEYED[name])
    inputs = {one: KeyedInput(schema, ("k",)) for one, schema in SCHEMAS.items()}
    follow(Universal(inputs, evaluate), evaluate, History(seed, SCHEMAS, row), sizes)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6), sizes=sizes)
def test_without_a_key(seed: int, sizes: list[tuple[int, int]]) -> None:
    evaluate = by_duckdb("SELECT count(*) AS c, sum(n)::BIGINT AS s FROM a, (SELECT 1) u")
    operator = Universal({"a": KeyedInput(A)}, evaluate)
    follow(operator, evaluate, History(seed, {"a": A}, row), sizes)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6), sizes=sizes)
def test_with_an_input_that_each_key_needs_whole(seed: int, sizes: list[tuple[int, int]]) -> None:
    sql = "SELECT k, sum(n)::BIGINT AS s FROM a GROUP BY k HAVING sum(n) > (SELECT max(m) FROM b)"
    evaluate = by_duckdb(sql)
    inputs = {"a": KeyedInput(A, ("k",)), "b": KeyedInput(B, whole=True)}
    follow(Universal(inputs, evaluate), evaluate, History(seed, SCHEMAS, row), sizes)


def test_a_long_history_forgets_what_is_gone() -> None:
    evaluate = by_duckdb(KEYED["group"])
    operator = Universal({"a": KeyedInput(A, ("k",))}, evaluate)
    history = History(7, {"a": A}, row)
    follow(operator, evaluate, history, [(3_000, 0), *[(2_000, 2_000)] * 8, (0, 2_500)])
    assert operator._kept["a"]._rows.size < 10_000


def table(**columns: list[object]) -> pa.Table:
    return pa.table(columns)


def test_only_the_rows_of_touched_keys_are_evaluated() -> None:
    seen: list[int] = []

    def evaluate(tables: Mapping[str, pa.Table]) -> pa.Table:
        seen.append(len(tables["a"]))
        return by_duckdb(KEYED["distinct"])(tables)

    operator = Universal({"a": KeyedInput(A, ("k",))}, evaluate)
    operator.begin()
    rows = pa.table({"k": range(1000), "g": ["x"] * 1000, "n": range(1000)}, A)
    operator.step({"a": changes(rows.slice(0, 0), rows)})
    seen.clear()
    operator.step({"a": changes(rows.slice(3, 1), rows.slice(5, 2))})
    assert seen == [3, 4]


def test_a_step_that_fails_changes_nothing() -> None:
    evaluate = by_duckdb(KEYED["group"])
    failing = [False]

    def sometimes(tables: Mapping[str, pa.Table]) -> pa.Table:
        if failing[0] and len(tables["a"]) > 1:
            raise ArithmeticError
        return evaluate(tables)

    operator = Universal({"a": KeyedInput(A, ("k",))}, sometimes)
    history = History(1, {"a": A}, row)
    result = Result()
    result.add(operator.step(history.batch(20, 0)))
    more = history.batch(20, 10)
    failing[0] = True
    with pytest.raises(ArithmeticError):
        operator.step(more)
    failing[0] = False
    result.add(operator.step(more))
    assert result.content == content(evaluate(history.tables))


def test_deleting_what_is_not_there_is_refused_and_changes_nothing() -> None:
    operator = Universal({"a": KeyedInput(A, ("k",))}, by_duckdb(KEYED["group"]))
    one = pa.table({"k": [1], "g": ["x"], "n": [1]}, A)
    operator.step({"a": changes(one.slice(0, 0), one)})
    with pytest.raises(TaskError, match="1 rows of a are to be deleted that are not there"):
        operator.step({"a": changes(pa.concat_tables([one, one]), one.slice(0, 0))})
    assert len(operator) == 1


def test_a_query_that_gives_rows_for_no_key_is_refused() -> None:
    operator = Universal({"a": KeyedInput(A, ("k",))}, by_duckdb("SELECT count(*) FROM a"))
    with pytest.raises(ValueError, match="for no key"):
        operator.begin()


def test_of_equal_rows_the_oldest_goes() -> None:
    operator = Universal(
        {"a": KeyedInput(A, ("k",))}, by_duckdb("SELECT list(n) AS l FROM a GROUP BY k")
    )
    rows = pa.table({"k": [1, 1, 1], "g": ["x", "y", "x"], "n": [1, 2, 1]}, A)
    operator.step({"a": changes(rows.slice(0, 0), rows)})
    found = operator.step({"a": changes(rows.slice(0, 1), rows.slice(0, 0))})
    assert found.to_pylist() == [{"l": [1, 2, 1], OP: DELETE}, {"l": [2, 1], OP: INSERT}]


def test_rows_that_differ_in_a_bit_are_two_and_nan_is_one() -> None:
    values = [0.0, -0.0, math.nan, None]
    before = table(x=[*values, 1.5], l=[[v] for v in [*values, 1.5]])
    after = table(x=[-0.0, None, math.nan, 0.0, 2.5], l=[[-0.0], [None], [math.nan], [0.0], [2.5]])
    found = difference(before, after)
    assert found.column("x").to_pylist() == [1.5, 2.5]
    assert repr(difference(before.slice(0, 1), before.slice(1, 1)).column("x").to_pylist()) == (
        "[0.0, -0.0]"
    )


def test_what_row_by_row_queries_keep_is_nothing() -> None:
    evaluate = by_duckdb("SELECT n // 2 AS h FROM a WHERE k > 0")
    operator = RowWise("a", evaluate)
    history, result = History(3, {"a": A}, row), Result()
    for _ in range(5):
        result.add(operator.step(history.batch(20, 8)))
        assert result.content == content(evaluate(history.tables))
