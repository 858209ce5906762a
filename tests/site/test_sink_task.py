"""A sink's task: what it hands on, and what it does while nobody takes it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from anabranch.connectors.sink import ANEW, Beginning, Sink
from anabranch.errors import Fenced, SinkAway, SinkBehind, SinkError, StorageError
from anabranch.link.inlet import LiveInlet
from anabranch.plan.operators import Call
from anabranch.runtime.troubles import Backoff
from anabranch.site.tasks import sink as sinks
from anabranch.site.tasks.executor import Executor
from anabranch.site.tasks.sink import SinkBody, SinkTask
from anabranch.stream.batch import END_WATERMARK
from anabranch.stream.restart import RestartPoint
from tests.link.support import LOOP, eventually, offer
from tests.site.fakes import COLUMNS, Heard, a_task, batch, start


class World:
    """Where sinks write. `trouble` is raised by whatever is tried; what is `lost` was there."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.whole = 0
        self.trouble: Exception | None = None
        self.half: Exception | None = None
        """Raised by a write once it is there: its commit was lost on its way back."""
        self.opened: list[tuple[bool, Beginning]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.hanging = threading.Event()

    def meet(self) -> None:
        if self.trouble:
            raise self.trouble


class KnowingSink(Sink):
    resumable = True

    def __init__(self, world: World, resume: bool) -> None:
        self.world, self._resume = world, resume
        world.meet()

    def open(self, begin: Beginning = ANEW) -> None:
        self.world.opened.append((self._resume, begin))
        self.world.meet()
        if not self._resume:
            self.world.rows.clear()

    def written(self) -> int:
        return self.world.rows[-1] if self.world.rows else 0

    def write(self, table: pa.Table) -> None:
        if not self.world.gate.is_set():
            self.world.hanging.set()
            self.world.gate.wait(20)
        self.world.meet()
        self.world.rows += table.column("_pos").to_pylist()
        half, self.world.half = self.world.half, None
        if half:
            raise half

    def close(self) -> None:
        self.world.whole = len(self.world.rows)


class AbandonedSink(KnowingSink):
    """Can be cut off while it writes."""

    def abandon(self) -> None:
        self.world.trouble = SinkAway("cut off")
        self.world.gate.set()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PASSING", "FINAL"):
        monkeypatch.setattr(sinks, name, Backoff(0.01, 0.02))


def a_sink_task(
    world: World, *, resume: bool = False, kind: type[KnowingSink] = KnowingSink, **more: Any
) -> tuple[SinkTask, LiveInlet]:
    body = SinkBody(lambda resume: kind(world, resume), COLUMNS, resume=resume)
    task, inlet = a_task(body, kind=SinkTask, **more)
    task.spec = task.spec.model_copy(update={"sink": Call(name="kafka")})
    return task, inlet


class Driven(Heard):
    """Runs what may run, as an executor would."""

    def consider(self, task: Any) -> None:
        threading.Thread(target=run, args=(task,)).start()


def run(task: SinkTask) -> None:
    while task.ready():
        task.run_instance()


def test_a_sink_gets_every_tuple_with_its_position() -> None:
    world = World()
    task, inlet = a_sink_task(world)
    start(task, RestartPoint((10,), 0))
    for first, count in ((11, 3), (12, 5)):
        offer(inlet, batch(first, count))
        run(task)
    assert world.rows == list(range(11, 17))
    assert task.restart_point() == RestartPoint((16,), 16)
    assert world.opened == [(False, Beginning(epoch=0, after=0))]
    offer(inlet, batch(17, 0, END_WATERMARK))
    run(task)
    assert (task.state, world.whole) == ("done", 6)


def test_an_error_of_the_results_is_final() -> None:
    world = World()
    task, inlet = a_sink_task(world)
    start(task, RestartPoint((0,), 0))
    offer(inlet, batch(1, 3))
    run(task)
    world.trouble = SinkError("there is no such value", place="out.csv")
    offer(inlet, batch(4, 3))
    run(task)
    LOOP.run(task.close())
    assert task.state == "failed"
    assert isinstance(task.error, SinkError)
    assert task.error.line() == "out.csv: query hot: there is no such value"
    assert world.rows == [1, 2, 3]
    assert task.restart_point() == RestartPoint((3,), 3)


@pytest.mark.parametrize("kind", [SinkAway, StorageError])
def test_what_is_away_is_waited_for(kind: type[Any]) -> None:
    """Nothing is acknowledged and nothing more is taken meanwhile; then all of it is there once."""
    world, owner = World(), Driven()
    task, inlet = a_sink_task(world, owner=owner)
    start(task, RestartPoint((0,), 0))
    offer(inlet, batch(1, 3))
    run(task)
    world.trouble = kind("connection refused", place="db:5432")
    offer(inlet, batch(4, 3))
    run(task)
    away = task.report().away
    assert "connection refused" in away.reason
    assert away.passes
    assert (task.state, task.report().error, task.report().queue) == ("running", None, 3)
    offer(inlet, batch(7, 3))
    eventually(lambda: task.away is not None and task.away.tries > 3)
    assert inlet.taken == 6
    assert task.restart_point() == RestartPoint((3,), 3)
    world.trouble = None
    eventually(lambda: world.rows == list(range(1, 10)))
    eventually(lambda: task.report().away is None)
    assert task.restart_point() == RestartPoint((9,), 9)
    assert owner.failures == []
    first, *later = [resume for resume, _ in world.opened]
    assert not first
    assert all(later)


def test_what_was_written_though_nobody_said_so_is_not_written_twice() -> None:
    world = World()
    task, inlet = a_sink_task(world, owner=Driven())
    start(task, RestartPoint((0,), 0))
    world.half = SinkAway("the connection was lost while it was committed")
    offer(inlet, batch(1, 3))
    run(task)
    offer(inlet, batch(4, 3))
    eventually(lambda: (run(task), task.restart_point() == RestartPoint((6,), 6))[1])
    assert world.rows == [1, 2, 3, 4, 5, 6]


def test_a_restart_waits_for_what_is_away() -> None:
    """It is built and started at once; nothing has come, and it is opened all the same."""
    world = World()
    world.rows = [1, 2, 3, 4]
    world.trouble = SinkAway("no broker answers")
    task, inlet = a_sink_task(world, resume=True, owner=Driven())
    start(task, RestartPoint((3,), 3), epoch=7)
    eventually(lambda: task.report().away is not None)
    assert task.state == "running"
    offer(inlet, batch(4, 3))
    world.trouble = None
    eventually(lambda: world.rows == [1, 2, 3, 4, 5, 6])
    assert world.opened[-1] == (True, Beginning(epoch=7, after=3))


def test_a_creation_does_not_wait() -> None:
    world = World()
    world.trouble = SinkAway("no broker answers")
    with pytest.raises(SinkAway, match="no broker answers"):
        a_sink_task(world)
    world.trouble = None
    task, _ = a_sink_task(world)
    world.trouble = SinkError("no permission")
    with pytest.raises(SinkError, match="no permission"):
        start(task, RestartPoint((0,), 0))
    assert task.state == "waiting"


def test_it_may_go_away_at_once_after_its_creation() -> None:
    world = World()
    task, inlet = a_sink_task(world, owner=Driven())
    start(task, RestartPoint((0,), 0))
    world.trouble = SinkAway("the server is shutting down")
    offer(inlet, batch(1, 3))
    run(task)
    assert task.away
    world.trouble = None
    eventually(lambda: world.rows == [1, 2, 3])


def test_a_sink_that_lacks_what_was_acknowledged_is_not_gone_on_with() -> None:
    """Until a person has put it back; the query's results are kept."""
    world = World()
    world.rows = list(range(1, 981))
    task, inlet = a_sink_task(world, resume=True, owner=Driven())
    start(task, RestartPoint((1000,), 1000))
    eventually(lambda: task.report().away is not None)
    report = task.report()
    assert "up to position 980, but those up to 1,000 were ackn" in report.away.reason
    assert not report.away.passes
    assert report.error.kind == SinkBehind.__name__
    offer(inlet, batch(1001, 2))
    world.rows = list(range(1, 1001))
    eventually(lambda: world.rows == list(range(1, 1003)))
    assert task.report().error is None


def test_what_a_sink_has_lost_a_person_gives_up_by_its_positions() -> None:
    """Nothing else is given up with it, and nobody else can."""
    world = World()
    world.rows = list(range(1, 981))
    task, inlet = a_sink_task(world, resume=True, owner=Driven())
    with pytest.raises(SinkError, match="does not wait for results that its sink has lost"):
        LOOP.run(task.go_on_without(981, 1000))
    start(task, RestartPoint((1000,), 1000))
    eventually(lambda: task.report().away is not None)
    assert task.report().away.reason.endswith("write RESUME QUERY hot WITHOUT 981 TO 1000;")
    offer(inlet, batch(1001, 2))
    for wrong in ((981, 999), (980, 1000), (981, 1001)):
        with pytest.raises(SinkError, match=r"missing is results 981 to 1,000, not results 9"):
            LOOP.run(task.go_on_without(*wrong))
    world.rows = list(range(1, 979))  # and two more are gone meanwhile
    eventually(lambda: "WITHOUT 979 TO 1000" in task.report().away.reason)
    with pytest.raises(SinkError, match=r"WITHOUT 979 TO 1000"):
        LOOP.run(task.go_on_without(981, 1000))
    LOOP.run(task.go_on_without(979, 1000))
    eventually(lambda: world.rows == [*range(1, 979), 1001, 1002])
    assert task.report().away is None
    assert task.report().error is None


def test_one_that_was_fenced_off_does_not_wait() -> None:
    """Another writes there, which needs what this one has read."""
    world, owner = World(), Driven()
    world.trouble = Fenced("a later incarnation writes here")
    task, _ = a_sink_task(world, resume=True, owner=owner)
    start(task, RestartPoint((0,), 0))
    eventually(lambda: owner.failures == [task])


def test_what_does_not_answer_is_told_before_anybody_gives_it_up() -> None:
    world = World()
    task, inlet = a_sink_task(world)
    start(task, RestartPoint((0,), 0))
    world.gate.clear()
    offer(inlet, batch(1, 3))
    writing = threading.Thread(target=run, args=(task,))
    writing.start()
    world.hanging.wait(20)
    task.ran(4.0, 1.0)
    assert task.report().away is None
    task.ran(2.0, 1.0)
    away = task.report().away
    assert (away.reason, away.passes, away.since_s) == (
        "what it writes to does not answer",
        True,
        6.0,
    )
    world.gate.set()
    writing.join()
    assert task.report().away is None
    assert world.rows == [1, 2, 3]


def test_room_that_is_held_is_given_back_when_it_is_dropped() -> None:
    world = World()
    task, inlet = a_sink_task(world)
    start(task, RestartPoint((0,), 0))
    world.trouble = SinkAway("it is away")
    offer(inlet, batch(1, 3))
    run(task)
    assert inlet._running_bytes > 0
    task.stop()
    assert not task.ready()
    LOOP.run(task.close())
    assert inlet._running_bytes == 0


# -- threads -------------------------------------------------------------------------------------


@pytest.fixture
def executor() -> Iterator[Executor]:
    made = Executor(LOOP, "centre", slots=1)
    yield made
    made.close()


class Served(Heard):
    def __init__(self, executor: Executor) -> None:
        super().__init__()
        self._executor = executor

    def consider(self, task: Any) -> None:
        self._executor.consider(task)


def test_sinks_that_hang_hold_up_no_other(executor: Executor) -> None:
    """However many do; and there are as many threads as need be, and no more."""
    hung = [World() for _ in range(4)]
    well = [World() for _ in range(4)]
    tasks = {}
    for n, world in enumerate((*hung, *well)):
        task, inlet = a_sink_task(world, owner=Served(executor), name=f"q{n}")
        start(task, RestartPoint((0,), 0))
        tasks[id(world)] = task, inlet
    for world in hung:
        world.gate.clear()
        write(executor, *tasks[id(world)], 1)
    eventually(lambda: all(world.hanging.is_set() for world in hung))
    for first in (1, 3, 5):
        for world in well:
            write(executor, *tasks[id(world)], first)
        eventually(lambda last=first + 1: all(one.rows == [*range(1, last + 1)] for one in well))
    threads = [one.name for one in threading.enumerate() if one.name.startswith("centre-sinks")]
    assert len(threads) <= len(hung) + 2
    for world in hung:
        world.gate.set()
    eventually(lambda: all(world.rows == [1, 2] for world in hung))
    eventually(
        lambda: (
            len([one for one in threading.enumerate() if one.name.startswith("centre-sinks")]) <= 1
        )
    )


def write(executor: Executor, task: SinkTask, inlet: LiveInlet, first: int) -> None:
    offer(inlet, batch(first, 2))
    executor.consider(task)
