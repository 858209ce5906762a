"""A task: what it takes, what it passes on, and from where it could start again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import Gap, TaskError
from anabranch.link.outlet import LiveOutlet
from anabranch.site.tasks.body import Produced, Taken
from anabranch.site.tasks.executor import Executor
from anabranch.site.tasks.task import Task
from anabranch.stream.batch import END_WATERMARK, START_WATERMARK
from anabranch.stream.restart import RestartPoint
from tests.link.support import LOOP, eventually, follow, offer, values
from tests.site.fakes import (
    SCHEMA,
    FakeBody,
    Heard,
    NoJobs,
    a_task,
    an_outlet,
    batch,
    start,
)


def run(task: Task) -> None:
    while task.ready():
        task.run_instance()


def results(outlet: LiveOutlet) -> list[int]:
    outlet.end()
    return values(follow(outlet, "c", 0))


# -- from input to output ------------------------------------------------------------------------


def test_results_in_order_and_the_end_passed_on() -> None:
    outlet = an_outlet()
    outlet.attach("c")
    task, inlet = a_task(FakeBody(lambda n: n % 2 == 0), outlet=outlet)
    start(task, RestartPoint((0,), 0))
    offer(inlet, batch(1, 5, 3))
    run(task)
    offer(inlet, batch(6, 5, END_WATERMARK))
    run(task)
    assert task.state == "done"
    assert outlet.ended
    assert results(outlet) == [2, 4, 6, 8, 10]


def test_an_instance_takes_no_more_than_it_may() -> None:
    """`batch = 1`: every tuple is scheduled by itself."""
    outlet = an_outlet("hot")
    task, inlet = a_task(FakeBody(), outlet=outlet, most=1)
    start(task, RestartPoint((0,), 0))
    offer(inlet, batch(1, 3))
    for taken in (1, 2, 3):
        task.run_instance()
        assert (task.processed, outlet.last) == ((taken,), taken)
    assert not task.ready()


def test_an_end_that_comes_during_an_instance_is_not_lost() -> None:
    """The task is done only after the instance that takes the end and passes it on."""
    outlet = an_outlet()
    body = FakeBody()
    task, inlet = a_task(body, outlet=outlet)
    start(task, RestartPoint((0,), 0))
    offer(inlet, batch(1, 3))
    body.during = lambda: offer(inlet, batch(4, 0, END_WATERMARK))
    task.run_instance()
    assert (task.state, outlet.ended, task.ready()) == ("running", False, True)
    body.during = lambda: None
    task.run_instance()
    assert (task.state, outlet.ended) == ("done", True)


def test_a_full_outlet_holds_the_task() -> None:
    outlet = an_outlet(limit=50)
    outlet.attach("c")
    task, inlet = a_task(FakeBody(), outlet=outlet)
    start(task, RestartPoint((0,), 0))
    offer(inlet, batch(1, 3))
    run(task)
    offer(inlet, batch(4, 3))
    assert not task.ready()
    next(follow(outlet, "c", 0))
    assert task.ready()


def test_it_begins_where_it_is_told() -> None:
    outlet = an_outlet()
    outlet.attach("c")
    task, inlet = a_task(FakeBody(), outlet=outlet)
    start(task, RestartPoint((7,), 0))
    assert task.restart_point() == RestartPoint((7,), 0)
    offer(inlet, batch(5, 5))
    run(task)
    assert results(outlet) == [8, 9]


# -- restart points ------------------------------------------------------------------------------

events = st.lists(st.tuples(st.integers(1, 6), st.integers(0, 9)), min_size=1, max_size=15)


@settings(deadline=None, max_examples=60)
@given(events, st.sets(st.integers(1, 90)), st.booleans())
def test_restart_points_are_right_and_never_go_back(
    script: list[tuple[int, int]], kept: set[int], consumed: bool
) -> None:
    """Replaying inputs from p + 1 on reproduces outputs from q + 1 on: as many outputs as q come
    from inputs up to p. What consumers need no more up to a yields the newest point with q ≤ a,
    none without one."""
    outlet = an_outlet()
    task, inlet = a_task(FakeBody(kept.__contains__), outlet=outlet)
    if consumed:
        outlet.attach("c")
    start(task, RestartPoint((0,), 0))
    points = [task.restart_point()]
    acked = 0
    for size, lag in script:
        offer(inlet, batch(inlet.received + 1, size))
        run(task)
        if consumed:
            acked = max(acked, outlet.last - lag)
            outlet.level1("c", acked, RestartPoint((acked,), acked))
        points.append(task.restart_point())
    for point in points:
        assert point.output == sum(n <= point.inputs[0] for n in kept)
    assert points == sorted(points, key=lambda point: (point.inputs, point.output))
    assert points[-1].output <= acked or not consumed
    if not consumed or acked == outlet.last:
        assert points[-1].alone == RestartPoint((inlet.taken,), outlet.last)
    readers = {"c": RestartPoint((acked,), acked)} if consumed else {}
    assert points[-1].readers == readers  # whoever knows it knows where they would restart


def test_downstream_acks_are_passed_on_once() -> None:
    outlet = an_outlet()
    outlet.attach("c")
    owner = Heard()
    released = owner.points
    task, inlet = a_task(FakeBody(), outlet=outlet, owner=owner)
    start(task, RestartPoint((0,), 0))
    offer(inlet, batch(1, 4))
    run(task)
    assert released == []
    outlet.level0("c", 4, 0)
    outlet.level1("c", 3, RestartPoint((3,), 3))
    assert released == []
    outlet.level1("c", 4, RestartPoint((4,), 4))
    outlet.level1("c", 4, RestartPoint((4,), 4))
    point = RestartPoint((4,), 4)
    assert released == [replace(point, readers={"c": point})]


def test_a_consumer_that_leaves_holds_nothing_up() -> None:
    outlet = an_outlet()
    outlet.attach("c")
    task, inlet = a_task(FakeBody(), outlet=outlet)
    start(task, RestartPoint((0,), 0))
    offer(inlet, batch(1, 4))
    run(task)
    outlet.detach("c")
    assert task.restart_point() == RestartPoint((4,), 4)


# -- failures ------------------------------------------------------------------------------------


def failing(error: Exception) -> FakeBody:
    def during() -> None:
        raise error

    return FakeBody(during=during)


def test_a_failure_is_a_state_and_never_raised() -> None:
    body, owner = failing(ZeroDivisionError("by zero\nand more")), Heard()
    task, inlet = a_task(body, outlet=an_outlet(), owner=owner)
    start(task, RestartPoint((0,), 0))
    offer(inlet, batch(1, 3))
    task.run_instance()
    assert task.state == "failed"
    assert isinstance(task.error, TaskError)
    assert task.error.line() == "centre: query hot failed: ZeroDivisionError: by zero"
    assert owner.failures == [task]
    offer(inlet, batch(4, 3))
    assert not task.ready()
    assert task.restart_point() == RestartPoint((0,), 0)


def test_a_failure_behind_the_body_is_a_state_too() -> None:
    outlet = an_outlet()
    outlet.end()
    task, inlet = a_task(FakeBody(), outlet=outlet)
    start(task, RestartPoint((0,), 0))
    offer(inlet, batch(1, 3))
    task.run_instance()
    assert task.state == "failed"
    assert "has ended" in str(task.error)


def test_the_first_failure_is_the_one_that_counts() -> None:
    """A link may fail while an instance runs; the instance must not call the task done."""
    body, owner = FakeBody(), Heard()
    task, inlet = a_task(body, outlet=an_outlet(), owner=owner)
    start(task, RestartPoint((0,), 0))
    offer(inlet, batch(1, 3, END_WATERMARK))
    body.during = lambda: task.fail(Gap("tuples are missing"))
    task.run_instance()
    task.fail(TaskError("another"))
    assert (task.state, str(task.error)) == ("failed", "tuples are missing")
    assert owner.failures == [task]


def test_stopping_a_task_that_is_over_changes_nothing() -> None:
    task, inlet = a_task(FakeBody(), outlet=an_outlet())
    start(task, RestartPoint((0,), 0))
    offer(inlet, batch(1, 3, END_WATERMARK))
    run(task)
    task.stop()
    assert task.state == "done"


# -- long instances ------------------------------------------------------------------------------


class CutBody(FakeBody):
    """Gives the tuples of a step one by one, in as many steps."""

    def __init__(self) -> None:
        super().__init__()
        self._left = SCHEMA.empty_table()
        self._last, self._watermark = 0, START_WATERMARK
        self.taken: list[int] = []

    def step(self, inputs: Sequence[Taken]) -> Produced:
        (taken,) = inputs
        self.taken.append(taken.rows)
        if taken.rows:
            self._left, self._last = taken.table(SCHEMA), taken.last
        self._watermark = taken.watermark
        given, self._left = self._left.slice(0, 1), self._left.slice(1)
        more = bool(len(self._left))
        watermark = START_WATERMARK if more else self._watermark
        return Produced(given, watermark, (self._last - len(self._left),), more=more)


def test_an_instance_that_is_cut_goes_on_before_it_takes_more() -> None:
    outlet = an_outlet()
    outlet.attach("c")
    body = CutBody()
    task, inlet = a_task(body, outlet=outlet)
    start(task, RestartPoint((0,), 0))
    offer(inlet, batch(1, 3))
    task.run_instance()
    assert (task.ready(), task.processed, task.idle_at()) == (True, (0,), None)
    offer(inlet, batch(4, 2, END_WATERMARK))
    run(task)
    assert body.taken == [3, 0, 0, 2, 0]
    assert (task.processed, task.state) == ((5,), "done")
    assert results(outlet) == [1, 2, 3, 4, 5]


def test_others_get_their_turn_between_the_parts_of_an_instance() -> None:
    log: list[str] = []
    tasks = []
    for name in "ab":
        body = CutBody()
        body.step = _logged(log, name, body.step)  # type: ignore[method-assign]
        task, inlet = a_task(body)
        start(task, RestartPoint((0,), 0))
        offer(inlet, batch(1, 4, END_WATERMARK))
        tasks.append(task)
    executor = Executor(LOOP, "centre", 1)
    for task in tasks:
        executor.consider(task)
    deadline = time.monotonic() + 10
    while any(task.state != "done" for task in tasks) and time.monotonic() < deadline:
        time.sleep(0.01)
    executor.close()
    assert "".join(log) in ("abababab", "aababab" + "b")


def _logged(log: list[str], name: str, step: Callable[..., Produced]) -> Callable[..., Produced]:
    def logged(inputs: Sequence[Taken]) -> Produced:
        log.append(name)
        return step(inputs)

    return logged


class SlowBody(FakeBody):
    """Waits until it is interrupted."""

    def __init__(self) -> None:
        super().__init__()
        self.began, self.interrupted = threading.Event(), threading.Event()

    def step(self, inputs: Sequence[Taken]) -> Produced:
        self.began.set()
        assert self.interrupted.wait(10)
        raise TaskError("interrupted")

    def interrupt(self) -> None:
        self.interrupted.set()


def test_a_stop_interrupts_what_runs_and_is_no_failure() -> None:
    body, jobs, owner = SlowBody(), NoJobs(), Heard()
    task, inlet = a_task(body, jobs=jobs, owner=owner)
    start(task, RestartPoint((0,), 0))
    offer(inlet, batch(1, 1))
    running = threading.Thread(target=task.run_instance)
    running.start()
    assert body.began.wait(10)
    task.stop()
    running.join(10)
    eventually(lambda: jobs.cancelled == 1)
    assert (task.state, task.error, owner.failures) == ("stopped", None, [])
    LOOP.run(task.close())
    assert jobs.cancelled == 1
