"""What the shop's tables are compared with, and that a difference is noticed."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

import pytest

from anabranch.errors import TaskError
from anabranch.language.grammar.parser import parse
from anabranch.language.grammar.statements import CreateQuery
from anabranch.language.source import Script
from bench.shop import experiment
from bench.shop.expected import COLUMNS, differences, expected
from bench.shop.queries import SINKS, script
from bench.shop.sales import Sale


def at(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC)


SALES = {
    "s1": [
        Sale(1, "s1", 1, 2, 100, 3_000),
        Sale(4, "s1", 2, 1, 6_000, 9_999),
        Sale(7, "s1", 1, 1, 50, 10_000),
    ],
    "s2": [Sale(2, "s2", 1, 1, 300, 29_000)],
    "s3": [],
}


def test_what_the_tables_must_hold() -> None:
    found = expected(SALES)
    assert found["large_s1"] == Counter({(4, 6_000): 1})
    assert found["revenue_s1"] == Counter(
        [(1, 200, 1, at(0)), (2, 6_000, 1, at(0)), (1, 50, 1, at(10))]
    )
    assert found["revenue"].total() == 4
    assert found["best"] == Counter(
        [("s1", 2, 1, at(0)), ("s1", 1, 2, at(0)), ("s1", 1, 1, at(10)), ("s2", 1, 1, at(20))]
    )
    assert found["so_far"] == Counter(
        [
            ("s1", 6_200, 2, at(10)),
            ("s1", 6_250, 3, at(20)),
            ("s1", 6_250, 3, at(30)),
            ("s2", 300, 1, at(30)),
        ]
    )
    assert found["totals"] == Counter(
        [(1, "s1", 200), (4, "s1", 6_200), (7, "s1", 6_250), (2, "s2", 300)]
    )
    assert found["named"].total() == 4


def test_each_table_is_compared_and_made_by_a_query() -> None:
    statements = parse(Script(script("localhost:9092", "postgresql://test@localhost/shop")))
    queries = {one.name for one in statements if isinstance(one, CreateQuery)}
    assert set(SINKS) == set(COLUMNS) == set(expected(SALES))
    assert set(SINKS) <= queries


@pytest.mark.parametrize(
    ("got", "faults"),
    [
        ([(1,), (2,)], (0, 0, 0)),
        ([(1,)], (1, 0, 0)),
        ([(1,), (2,), (2,)], (0, 1, 0)),
        ([(1,), (3,)], (1, 0, 1)),
    ],
)
def test_differences(got: list[tuple[int]], faults: tuple[int, int, int]) -> None:
    found = differences(Counter([(1,), (2,)]), Counter(got))
    assert tuple(found.values()) == faults
    tables = {"named": {"rows": 2, **found}}
    row = {"what": "down, up", "first_s": 3.0}
    if any(faults):
        with pytest.raises(TaskError, match="the tables named are not what Kafka holds"):
            experiment.check({"tables": tables, "rows": [row]})
    else:
        experiment.check({"tables": tables, "rows": [row]})
        with pytest.raises(TaskError, match=r"the first new result came after 30\.0 s"):
            experiment.check({"tables": tables, "rows": [row | {"first_s": 30.0}]})
