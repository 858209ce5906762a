"""The memory of windows is bounded: the query that takes most of it goes, and no other."""

from __future__ import annotations

import pytest

from anabranch.errors import TaskError
from anabranch.link.message import plain
from anabranch.plan.tasks import TaskSpec
from anabranch.site.tasks.restart_points import PointsFile
from anabranch.site.tasks.snapshots import States, TaskState
from anabranch.site.tasks.state_budget import StateBudget
from anabranch.snapshot.state import KeptPieces, State
from anabranch.snapshot.timing import Limits
from tests.link.support import LOOP


def test_the_largest_has_to_go_and_only_it() -> None:
    budget = StateBudget(100)
    small, large = object(), object()
    assert budget.holds(small, 30)
    assert budget.holds(large, 70)
    assert budget.holds(small, 40)
    assert budget.held == 110
    assert not budget.holds(large, 71)
    budget.forget(large)
    assert budget.holds(small, 100)
    assert not budget.holds(small, 101)


class Windows:
    """A body that holds so many bytes."""

    def __init__(self) -> None:
        self.state_bytes = 0

    def reopen(self, instant: int) -> None:
        self.state_bytes = 0

    def snapshot(self) -> State:
        return State({}, [])

    def restore(self, kept: KeptPieces) -> None:
        """Nothing is kept."""


def test_a_query_whose_windows_are_too_large_fails_with_a_reason_and_holds_nothing() -> None:
    budget = StateBudget(1_000_000)
    limits = Limits(1.0, 1.0)
    states = States("centre", LOOP, None, PointsFile(None), limits=limits, budget=budget)
    spec = TaskSpec(name="sums", query="sums", site="centre", inputs=(), columns=())
    body = Windows()
    state = TaskState(LOOP, states, spec, body)
    body.state_bytes = 3_000_000
    with pytest.raises(TaskError, match=r"sums failed: its windows take 3MB of the 1MB"):
        state.measure()
    assert body.state_bytes == 0
    assert budget.held == 0
    assert plain(state.report())["memory_bytes"] == 3_000_000
