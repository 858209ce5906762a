"""An instance that runs too long is ended, and its query fails with what it was about."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence

import pytest

from anabranch.errors import TaskError
from anabranch.runtime.loop import Loop
from anabranch.site.tasks.body import Produced, Taken
from anabranch.site.tasks.limits import LEAST_S, limit_s
from anabranch.site.tasks.task import Task
from anabranch.spark.alive import Alive
from anabranch.stream.restart import RestartPoint
from tests.link.support import LOOP, eventually, offer
from tests.site.fakes import FakeBody, a_task, an_outlet, batch, start


class Hanging(FakeBody):
    """Ends only when it is left alone."""

    def __init__(self, *, hears: bool = False) -> None:
        super().__init__()
        self.begun, self.left, self.asked = threading.Event(), threading.Event(), 0
        self._hears = hears

    def step(self, inputs: Sequence[Taken]) -> Produced:
        self.begun.set()
        self.left.wait(30)
        raise EOFError("the JVM has closed the connection")

    def interrupt(self) -> None:
        self.asked += 1
        if self._hears:
            self.left.set()

    def abandon(self) -> None:
        self.left.set()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch.site.tasks.task.GRACE_S", 0.05)


def hanging(body: Hanging) -> tuple[Task, threading.Thread]:
    outlet = an_outlet()
    outlet.attach("c")
    task, inlet = a_task(body, outlet=outlet)
    start(task, RestartPoint((119,), 0))
    offer(inlet, batch(120, 61))
    thread = threading.Thread(target=task.run_instance, daemon=True)
    thread.start()
    assert body.begun.wait(10)
    return task, thread


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("hears", [True, False])
def test_its_query_fails_with_the_positions_of_its_tuples(hears: bool) -> None:
    body = Hanging(hears=hears)
    task, thread = hanging(body)
    with LOOP:
        for _ in range(59):
            task.ran(0.5, 30.0)
        assert body.asked == 0
        task.ran(1.0, 30.0)
        task.ran(1.0, 30.0)
    thread.join(10)
    eventually(lambda: task.state == "failed")
    assert isinstance(task.error, TaskError)
    assert "ran for more than 30 s on tuples 120 to 180 of S" in task.error.line()
    assert "instance_limit" in task.error.remedy


@pytest.mark.usefixtures("quick")
def test_a_drop_does_not_wait_for_one_that_does_not_hear() -> None:
    task, thread = hanging(Hanging())
    begun = time.monotonic()
    task.stop()
    LOOP.run(task.settled())
    assert time.monotonic() - begun < 5
    thread.join(10)
    assert task.state == "stopped"


def test_instances_get_smaller_when_they_come_near_their_limit() -> None:
    outlet = an_outlet()
    outlet.attach("c")
    task, inlet = a_task(FakeBody(), outlet=outlet)
    start(task, RestartPoint((0,), 0))
    offer(inlet, batch(1, 10))
    task.run_instance()
    assert task._long_us is None
    task.busy = True
    task.ran(10.0, 30.0)
    assert task._long_us == 7_500_000


def test_a_deadline_shortens_it() -> None:
    assert limit_s(30.0, None) == 30.0
    assert limit_s(30.0, 1_000_000) == 20.0
    assert limit_s(30.0, 50_000) == LEAST_S
    assert limit_s(3.0, 50_000) == 3.0


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop("jvm")
    yield made
    made.close()


def test_a_jvm_that_stands_still_is_told_and_ends_its_site(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch.spark.alive.EVERY_S", 0.02)
    monkeypatch.setattr("anabranch.spark.alive.SILENT_S", 0.1)
    stopped, ended = threading.Event(), threading.Event()
    stopped.set()

    def ping() -> int:
        stopped.wait(30)
        return 0

    watch = Alive(loop, ping, 1.0, lambda name, error: ended.set(), lambda: True)
    time.sleep(0.3)
    assert not watch.problem()
    stopped.clear()
    eventually(lambda: "Spark's JVM has not answered" in watch.problem())
    assert ended.wait(10)
    stopped.set()
    eventually(lambda: not watch.problem())
    watch.close()


def test_too_many_threads_that_nobody_waits_for_end_it_too(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch.spark.alive.EVERY_S", 0.02)
    told: list[str] = []
    watch = Alive(loop, lambda: 9, 1.0, lambda name, error: told.append(str(error)), lambda: True)
    eventually(lambda: bool(told))
    assert "9 of its threads" in told[0]
    watch.close()
