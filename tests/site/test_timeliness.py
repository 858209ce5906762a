"""A task against the clock."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.deadline.urgency import NO_DEADLINE, Laxities
from anabranch.plan.service_levels import Urgency
from anabranch.site.tasks.measures import Measures
from anabranch.site.tasks.timeliness import PAST_US, Timeliness
from anabranch.stream.batch import Batch
from anabranch.stream.restart import RestartPoint
from tests.link.support import an_inlet, numbers, offer
from tests.site.fakes import FakeBody, a_task, batch, start

URGENCY = Urgency(deadline_us=1000, summed_us=5000)


def waits(arrival: int, born: int) -> Any:
    """An inlet whose oldest tuple came then."""
    return SimpleNamespace(oldest=lambda: (arrival, born))


def test_an_instance_is_due_by_its_oldest_tuple() -> None:
    """(12), or what is left of the way from the source: whichever is earlier."""
    timeliness = Timeliness(URGENCY, None, Measures())
    assert timeliness.due([waits(9_000, 1)], 9_500) == (5_001, 1)
    assert timeliness.due([waits(9_000, 8_000)], 9_500) == (10_000, 8_000)
    assert timeliness.due([waits(9_000, 8_000), waits(9_100, 3)], 9_500) == (5_003, 3)


def test_what_waits_counts_from_when_it_came_here() -> None:
    lately = Timeliness(Urgency(deadline_us=1000, summed_us=2**62), None, Measures())
    inlet = an_inlet()
    offer(inlet, Batch("S", 1, 0, 0, numbers(1, 3)))
    deadline, _ = lately.due([inlet], time.time_ns() // 1000)
    assert deadline <= time.time_ns() // 1000 + 1000


def test_a_best_effort_that_is_late_comes_behind_all_that_is_due() -> None:
    maybe = Timeliness(URGENCY.model_copy(update={"best_effort": True}), None, Measures())
    assert maybe.due([waits(9_000, 1)], 4000) == (5001, 1)
    assert maybe.due([waits(9_000, 1)], 5002) == (NO_DEADLINE, 1)


def test_nothing_that_waits_is_due_from_now_on() -> None:
    assert Timeliness(URGENCY, None, Measures()).due([an_inlet()], 70) == (1070, 70)
    assert Timeliness(None, None, Measures()).due([an_inlet()], 70) == (NO_DEADLINE, 70)


def measured(fixed: float, per_tuple: float) -> Measures:
    measures = Measures()
    for rows in (1, 100) * 8:
        measures.add(0.0, rows, rows, fixed + per_tuple * rows, np.array([]))
    return measures


def test_an_instance_is_cut_to_what_is_allowed() -> None:
    timeliness = Timeliness(None, None, measured(0.004, 0.001))
    assert timeliness.most_rows(1000, None) == 1000
    assert timeliness.most_rows(1000, 24_000) == pytest.approx(20, abs=1)
    for little in (0, 3_000, 4_500):  # what an instance costs anyway, the tuples may cost too
        assert timeliness.most_rows(1000, little) == pytest.approx(4, abs=1)
    assert timeliness.most_rows(5, 24_000) == 5


def test_while_all_were_of_one_size_its_tuples_are_taken_to_cost_all_of_it() -> None:
    """Forty tuples in 2 s, again and again: a more urgent task must not wait for them whole. What
    smaller ones take shows whether that was true."""
    measures = Measures()
    for _ in range(8):
        measures.add(0.0, 40, 40, 2.0, np.array([]))
    timeliness = Timeliness(None, None, measures)
    assert timeliness.most_rows(1000, 90_000) == 1
    assert timeliness.most_rows(1000, 250_000) == 5
    for _ in range(8):
        measures.add(0.0, 1, 1, 2.0, np.array([]))  # they did not
    assert timeliness.most_rows(1000, 90_000) == 1000


def test_what_is_late_is_counted_against_both() -> None:
    timeliness = Timeliness(URGENCY, 7000, Measures())
    timeliness.judge(np.array([0, 1999, 2000, 4000, 9000]), 9000)
    assert (timeliness.judged, timeliness.late, timeliness.overran) == (5, 2, 3)


def test_a_standby_has_no_deadline() -> None:
    task, inlet = a_task(FakeBody())
    start(task, RestartPoint((0,), 0))
    task.timeliness.urgency = URGENCY
    offer(inlet, batch(1, 3))
    now = time.time_ns() // 1000
    assert task.sub_deadline_us == 1000
    assert task.due(0)[0] <= now + 1000
    task.role = "standby"
    assert (task.sub_deadline_us, task.due(0)[0]) == (None, NO_DEADLINE)


tasks = st.lists(st.tuples(st.integers(1, 9), st.integers(-5, 20)), max_size=8)


@given(tasks, st.integers(0, 10))
def test_more_urgent_tasks_allow_half_of_what_the_least_lax_can_spare(
    known: list[tuple[int, int]], deadline: int
) -> None:
    spare = [laxity for other, laxity in known if other < deadline]
    expected = max(0, min(spare)) // 2 if spare else None
    assert Laxities(known).allowed(deadline) == expected


def test_the_past_does_not_come_before_the_present() -> None:
    """Who reads what was kept for an hour takes turns with who reads what comes."""
    timeliness = Timeliness(None, None, Measures())
    now = 7_200_000_000
    assert timeliness.due([waits(now, now - PAST_US)], now) == (NO_DEADLINE, now)
    lately = now - PAST_US + 1
    assert timeliness.due([waits(now, lately)], now) == (NO_DEADLINE, lately)
