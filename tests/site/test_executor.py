"""The executor runs instances: one of a task at a time, none forgotten."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from anabranch.site.executor import Executor
from tests.link.support import eventually


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

    def ready(self) -> bool:
        return self.state == "running" and self._pending > 0

    def run_instance(self) -> None:
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
    executor = Executor("centre", slots=request.param)
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
    executor: Any = Executor("centre", slots=1)
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


def test_forget_waits_for_the_instance_and_none_follows(executor: Any) -> None:
    task = FakeTask()
    task.gate.clear()
    task.add()
    executor.consider(task)
    eventually(lambda: task.log == [""])
    task.add()
    task.state = "stopped"
    threading.Timer(0.05, task.gate.set).start()
    executor.forget(task)
    assert task.taken == 1
    executor.consider(task)
    time.sleep(0.02)
    assert task.log == [""]


def test_forget_of_a_queued_task_does_not_wait() -> None:
    executor: Any = Executor("centre", slots=1)
    busy, queued = FakeTask(), FakeTask()
    busy.gate.clear()
    for task in (busy, queued):
        task.add()
        executor.consider(task)
    queued.state = "stopped"
    executor.forget(queued)
    busy.gate.set()
    eventually(lambda: busy.taken == 1)
    executor.close()
    assert queued.log == []


def test_after_close_nothing_runs(executor: Any) -> None:
    executor.close()
    task = FakeTask()
    task.add()
    executor.consider(task)
    time.sleep(0.02)
    assert task.log == []
    executor.forget(task)
