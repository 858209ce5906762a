"""DEADLINE, COST and SHED. The mistakes are in `scenarios/timeliness.txt`."""

from __future__ import annotations

import pytest

from anabranch.language import CreateStream, Script, bind_shed, bind_stream, parse
from anabranch.plan.expressions import plain
from anabranch.plan.service_levels import CostHint, Deadline, Shed
from tests.language.fakes import FakeTyper, bind

HEAD = "SELECT Temp FROM Sensor1"


@pytest.mark.parametrize(
    ("clauses", "deadline", "cost"),
    [
        ("DEADLINE 300ms", Deadline(us=300_000), None),
        ("WHERE Temp > 50 DEADLINE 1.5 s AT room1", Deadline(us=1_500_000), None),
        ("DEADLINE 1s BEST EFFORT", Deadline(us=10**6, best_effort=True), None),
        ("COST 3ms", None, CostHint(fixed_us=3000)),
        ("COST 20us PER TUPLE DEADLINE 1s", Deadline(us=10**6), CostHint(per_tuple_us=20)),
        ("COST 3ms + 20us PER TUPLE", None, CostHint(fixed_us=3000, per_tuple_us=20)),
        ("COST 20us per tuple + 3ms", None, CostHint(fixed_us=3000, per_tuple_us=20)),
    ],
)
def test_a_query_asks_for_time(
    clauses: str, deadline: Deadline | None, cost: CostHint | None
) -> None:
    query = bind(f"{HEAD} {clauses}")
    assert (query.deadline, query.cost) == (deadline, cost)


def test_a_column_may_be_called_cost() -> None:
    assert bind("SELECT Temp cost FROM Sensor1").columns[0].name == "cost"


def shed(text: str) -> Shed:
    script = Script(f"CREATE STREAM s (a INT, b DOUBLE) {text}")
    (statement,) = parse(script)
    assert isinstance(statement, CreateStream)
    assert statement.shed
    stream = bind_stream(statement, script, default_site="room1", base="")
    return bind_shed(statement.shed, stream, script, FakeTyper())


@pytest.mark.parametrize(
    ("text", "most", "per_us", "keep", "shown"),
    [
        (
            "FROM f() SHED ABOVE 1000/s KEEP BY a",
            1000,
            10**6,
            "`a`",
            "SHED ABOVE 1000/s KEEP BY `a`",
        ),
        (
            "SHED ABOVE 20/10ms KEEP BY a * 2 + s.b FROM f() AT room1",
            20,
            10_000,
            "`a` * 2 + `b`",
            "SHED ABOVE 20/10ms KEEP BY `a` * 2 + `b`",
        ),
    ],
)
def test_a_stream_says_what_it_keeps(
    text: str, most: int, per_us: int, keep: str, shown: str
) -> None:
    found = shed(text)
    assert (found.most, found.per_us, found.keep.sql(plain)) == (most, per_us, keep)
    assert str(found) == shown
