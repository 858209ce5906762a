"""A line a query against its deadline, and who is to blame."""

from __future__ import annotations

from typing import Any

from anabranch.cli.show.deadlines import deadline_lines
from anabranch.link.reports import TaskReport
from simulation.reports import a_task


def task(name: str, inputs: list[str], **said: Any) -> TaskReport:
    usual = {"query": "q", "inputs": tuple(inputs), "laxity_ms": 40.0, "p99_ms": 31.0}
    return a_task(name, f"at-{name}", **usual | said)


def test_all_is_well() -> None:
    last = task("q", ["s"], deadline_ms=300.0, judged=1200, laxity_ms=5.25)
    assert list(deadline_lines([last])) == [
        ("query q: due in 300 ms, p99 31 ms, 0 of 1,200 late; least laxity 5.2 ms", True)
    ]


def test_blame_goes_to_whoever_made_most_late_that_came_in_time() -> None:
    tasks = [
        task("a", ["s"], overran=3),
        task("b", ["a"], overran=90, laxity_ms=-2.0),
        task("q", ["b"], overran=95, deadline_ms=300.0, judged=1000, late=95),
    ]
    assert list(deadline_lines(tasks)) == [
        (
            "query q: due in 300 ms, p99 31 ms, 95 of 1,000 late (9.50%), because of b at at-b;"
            " least laxity -2.0 ms",
            False,
        )
    ]


def test_queries_without_a_deadline_have_no_line() -> None:
    assert list(deadline_lines([task("q", ["s"])])) == []
