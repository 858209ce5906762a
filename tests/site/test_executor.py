"""The executor runs instances: one of a task at a time, none forgotten."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from anabranch.deadline.urgency import NO_DEADLINE
from anabranch.site.tasks.executor import Executor
from tests.link.support import LOOP, eventually


class FakeTask:
    """Has `pending` units of work; an instance takes all that waits."""

    def __init__(self, name: str = "", log: list[str] | None = None) -> None:
        self.name = name
        self.log = log if log is not None else []
        self.state = "running"
        self.taken = 0
        self.overlaps = 0
        self.gate = threading.Event()
        self.gate.set()
        self._lock = threading.Lock()
        self._running = False
        self._pending = 0

    def add(self, units: int = 1) -> None:
        with self._lock:
            self._pending += units

    sub_deadline_us: int | None = None
    writes: bool = False
    laxity: int | None = None
    deadline = NO_DEADLINE
    born: int | None = None
    allowed: int | None = None

    def due(self, now_us: int) -> tuple[int, int]:
        return self.deadline, now_us if self.born is None else self.born

    def laxity_us(self) -> int | None:
        return self.laxity

    def ready(self) -> bool:
        return self.state == "running" and self._pending > 0

    def run_instance(self, allowed_us: int | None) -> None:
        self.allowed = allowed_us
        with self._lock:
            self.overlaps += self._running
            self._running = True
            units, self._pending = self._pending, 0
        self.log.append(self.name)
        self.gate.wait(5)
        with self._lock:
            self.taken += units
            self._running = False


@pytest.fixture(params=[1, 3])
def executor(request: pytest.FixtureRequest) -> Iterator[Any]:
    executor = Executor(LOOP, "centre", slots=request.param)
    yield executor
    executor.close()


def test_no_wake_up_is_lost_and_no_task_runs_twice_at_once(executor: Any) -> None:
    """Work is added and considered from many threads at once, as links do."""
    tasks = [FakeTask() for _ in range(5)]

    def feed(task: FakeTask) -> None:
        for _ in range(300):
            task.add()
            executor.consider(task)

    threads = [threading.Thread(target=feed, args=(task,)) for task in tasks for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    eventually(lambda: all(task.taken == 1_200 for task in tasks))
    assert [task.overlaps for task in tasks] == [0] * 5


def test_what_arrives_meanwhile_is_one_next_instance(executor: Any) -> None:
    task = FakeTask()
    task.gate.clear()
    task.add()
    executor.consider(task)
    eventually(lambda: len(task.log) == 1)
    for _ in range(50):
        task.add()
        executor.consider(task)
    task.gate.set()
    eventually(lambda: task.taken == 51)
    assert len(task.log) == 2


def test_instances_run_in_order_of_arrival() -> None:
    executor: Any = Executor(LOOP, "centre", slots=1)
    log: list[str] = []
    first, *rest = [FakeTask(name, log) for name in "abcdef"]
    first.gate.clear()
    for task in (first, *reversed(rest)):
        task.add()
        executor.consider(task)
    first.gate.set()
    eventually(lambda: len(log) == 6)
    assert log == list("afedcb")
    executor.close()


def test_a_task_without_work_is_not_queued(executor: Any) -> None:
    task = FakeTask()
    executor.consider(task)
    task.add()
    executor.consider(task)
    eventually(lambda: task.taken == 1)
    assert task.log == [""]


def test_after_close_nothing_runs(executor: Any) -> None:
    executor.close()
    task = FakeTask()
    task.add()
    executor.consider(task)
    time.sleep(0.02)
    assert task.log == []


def behind_a_running_one(executor: Any, tasks: list[FakeTask], log: list[str]) -> list[str]:
    """The order in which `tasks` run that were queued while another ran."""
    first = FakeTask("first", log)
    first.gate.clear()
    for task in (first, *tasks):
        task.add()
        executor.consider(task)
        if task is first:
            eventually(lambda: log == ["first"])
    first.gate.set()
    eventually(lambda: len(log) == len(tasks) + 1)
    return log[1:]


def dated(log: list[str], name: str, deadline: int, born: int) -> FakeTask:
    task = FakeTask(name, log)
    task.deadline, task.born = deadline, born
    return task


@pytest.mark.parametrize(("policy", "order"), [("edf", "cbad"), ("fifo", "dabc")])
def test_the_earliest_deadline_goes_first_or_the_oldest_tuple(policy: Any, order: str) -> None:
    executor: Any = Executor(LOOP, "centre", 1, policy)
    log: list[str] = []
    tasks = [
        dated(log, "a", 30, 2),
        dated(log, "b", 20, 3),
        dated(log, "c", 10, 4),
        dated(log, "d", NO_DEADLINE, 1),
    ]
    assert "".join(behind_a_running_one(executor, tasks, log)) == order
    executor.close()


def test_a_queued_task_moves_up_when_something_more_urgent_arrives() -> None:
    executor: Any = Executor(LOOP, "centre", 1)
    log: list[str] = []
    tasks = [dated(log, "a", 10, 1), dated(log, "b", 20, 1)]
    first = FakeTask("first", log)
    first.gate.clear()
    for task in (first, *tasks):
        task.add()
        executor.consider(task)
        eventually(lambda: log == ["first"])
    tasks[1].deadline = 5
    executor.consider(tasks[1])
    first.gate.set()
    eventually(lambda: len(log) == 3)
    assert log == ["first", "b", "a"]
    executor.close()


def test_an_instance_may_run_as_long_as_more_urgent_tasks_can_spare() -> None:
    executor: Any = Executor(LOOP, "centre", 1)
    urgent, slow = FakeTask(), FakeTask()
    urgent.sub_deadline_us, urgent.laxity = 1000, 700
    slow.sub_deadline_us, slow.laxity = 50_000, 20_000
    for task in (urgent, slow):
        task.add()
        executor.consider(task)
        eventually(lambda task=task: task.taken == 1)
    executor.queue._refreshed = 0.0
    for task in (urgent, slow):
        task.add()
        executor.consider(task)
        eventually(lambda task=task: task.taken == 2)
    assert (urgent.allowed, slow.allowed) == (None, 350)
    executor.close()


def test_sites_on_one_spark_share_a_queue() -> None:
    spark = object()
    here, there = Executor(LOOP, "here", 1, shared=spark), Executor(LOOP, "there", 1, shared=spark)
    other: Any = Executor(LOOP, "other", 1, shared=object())
    assert here.queue is there.queue
    assert other.queue is not here.queue
    here.close()
    task: Any = FakeTask()
    task.add()
    there.consider(task)
    eventually(lambda: task.taken == 1)
    there.close()
    again = Executor(LOOP, "again", 1, shared=spark)
    assert again.queue is not there.queue
    again.close()
    other.close()


def test_an_errand_waits_for_what_is_more_urgent() -> None:
    executor: Any = Executor(LOOP, "centre", 1)
    log: list[str] = []
    first, urgent = FakeTask("first", log), dated(log, "urgent", 10, 1)
    first.gate.clear()
    first.add()
    executor.consider(first)
    eventually(lambda: log == ["first"])
    given: list[Any] = []

    def ask() -> None:
        given.append(executor.run(lambda: log.append("errand") or 7))

    asking = threading.Thread(target=ask)
    asking.start()
    eventually(lambda: len(executor.queue._waiting) == 1)
    urgent.add()
    executor.consider(urgent)
    first.gate.set()
    asking.join(10)
    assert (log, given) == (["first", "urgent", "errand"], [7])
    executor.close()


def test_an_errand_that_fails_fails_where_it_was_asked_for() -> None:
    executor: Any = Executor(LOOP, "centre", 1)
    with pytest.raises(ZeroDivisionError):
        executor.run(lambda: 1 // 0)
    assert executor.run(lambda: 1) == 1  # the slot goes on
    executor.close()


def test_an_errand_is_given_up_when_its_turn_does_not_come() -> None:
    executor: Any = Executor(LOOP, "centre", 1)
    first = FakeTask("first")
    first.gate.clear()
    first.add()
    executor.consider(first)
    done: list[int] = []
    assert executor.run(lambda: done.append(1), patience_s=0.01) is None
    first.gate.set()
    executor.run(lambda: None)
    assert done == []
    executor.close()
    assert executor.run(lambda: 1, patience_s=5) is None  # nobody is there to do it


def test_a_sink_that_waits_for_the_world_holds_no_query_up() -> None:
    executor = Executor(LOOP, "centre", slots=1)
    slow, other, query = FakeTask(), FakeTask(), FakeTask()
    slow.writes = other.writes = True
    slow.gate.clear()
    for task in (slow, other, query):
        task.add()
        executor.consider(task)
    eventually(lambda: query.taken == 1)
    assert (slow.taken, other.taken) == (0, 0)
    slow.gate.set()
    eventually(lambda: other.taken == 1)
    executor.close()
    other.add()
    executor.consider(other)
    assert other.taken == 1
