"""A standby that is shipped little runs on made-up input, and its task does not notice."""

from __future__ import annotations

import threading

import pytest

from anabranch.site.standby.tuning import AT_ONCE, LATER_S, LEAST_S, SOON, SOON_S, Warmth
from anabranch.site.tasks.body import Body
from anabranch.site.tasks.task import Task
from anabranch.stream.restart import RestartPoint
from tests.link.support import LOOP, offer
from tests.site.fakes import FakeBody, a_task, batch, start
from tests.site.test_calibration import at_once


@pytest.fixture
def body() -> FakeBody:
    return FakeBody()


def started(body: Body) -> Task:
    task, _ = a_task(body)
    start(task, RestartPoint((0,), 0))
    return task


def a_warmth(task: Task) -> Warmth:
    """Which does not run by itself."""
    warmth = Warmth(LOOP, task, at_once, lambda: None)
    warmth.close()
    return warmth


def feed(task: Task) -> None:
    offer(task.inlets[0], batch(1, 3))


def test_it_is_quick_at_first_and_slower_later(body: FakeBody) -> None:
    warmth = a_warmth(started(body))
    pauses = [warmth._next() for _ in range(SOON + 5)]
    assert body.warmed == SOON + 5
    assert all(LEAST_S <= pause < SOON_S for pause in pauses[: AT_ONCE - 1])
    assert set(pauses[AT_ONCE - 1 : SOON - 1]) == {SOON_S}
    assert set(pauses[SOON - 1 :]) == {LATER_S}


def test_one_that_runs_by_itself_is_left_alone(body: FakeBody) -> None:
    task = started(body)
    warmth = a_warmth(task)
    feed(task)
    assert warmth._next() == SOON_S  # something waits
    task.run_instance()
    assert warmth._next() == SOON_S
    assert body.warmed == 0
    warmth._next()
    assert body.warmed == 1


def test_it_counts_as_cost_and_as_nothing_else(body: FakeBody) -> None:
    task = started(body)
    a_warmth(task)._next()
    measures = task.measures.report(0.0)
    assert (task.measures.samples, measures["instances"], measures["rows_in"]) == (1, 0, 0)
    assert task.measures.cost().fixed > 0
    assert task.restart_point() == RestartPoint((0,), 0)
    feed(task)
    task.run_instance()
    assert task.processed == (3,)


def test_what_cannot_be_done_says_nothing_of_the_cost() -> None:
    class Outside(FakeBody):
        def warm_up(self) -> bool:
            return False

    class Gone(FakeBody):
        def warm_up(self) -> bool:
            raise ConnectionError

    for body, pause in ((Outside(), SOON_S), (Gone(), LATER_S)):
        task = started(body)
        assert a_warmth(task)._next() == pause
        assert task.measures.samples == 0
        feed(task)
        task.run_instance()  # it has left nothing locked
        assert task.processed == (3,)


def test_a_task_that_has_ended_is_not_run(body: FakeBody) -> None:
    task = started(body)
    task.stop()
    a_warmth(task)._next()
    assert body.warmed == 0


def test_what_came_during_the_last_run_is_looked_at_though_it_is_closed() -> None:
    """It takes over while it warms up: nothing else may follow that would have it looked at."""
    warming, go_on, looked = (threading.Event() for _ in range(3))

    class Slow(FakeBody):
        def warm_up(self) -> bool:
            warming.set()
            return go_on.wait(10)

    warmth = Warmth(LOOP, started(Slow()), at_once, looked.set)
    assert warming.wait(10)
    with LOOP:
        warmth.close()
    assert not looked.is_set()
    go_on.set()
    assert looked.wait(10)
