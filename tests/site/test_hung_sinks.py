"""Sinks of a real PostgreSQL that goes away, or that somebody has locked."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from anabranch.connectors import make_sink
from anabranch.connectors.sink import Sink, SinkContext
from anabranch.link.inlet import LiveInlet
from anabranch.link.messages import DropTasks
from anabranch.plan.operators import Call
from anabranch.runtime.troubles import Backoff
from anabranch.site.deployment import Deployment
from anabranch.site.tasks import sink as sinks
from anabranch.site.tasks.executor import Executor
from anabranch.site.tasks.restart_points import PointsFile
from anabranch.site.tasks.sink import SinkBody, SinkTask
from anabranch.site.tasks.snapshots import States
from anabranch.site.tasks.state_budget import StateBudget
from anabranch.snapshot.timing import Limits
from anabranch.stream.restart import RestartPoint
from bench.systems.postgres import Postgres
from tests.link.support import LOOP, eventually, offer
from tests.site.fakes import COLUMNS, a_task, batch, start

WRITTEN = COLUMNS.append(pa.field("_pos", pa.int64())).append(pa.field("_ts", pa.int64()))


class NoFiles:
    """Of whoever builds what is deployed."""

    def forget(self, streams: Iterable[str], tasks: Iterable[str]) -> None:
        pass


class NoLinks:
    """Nobody feeds the tasks but the test."""

    def unfollow(self, task: Any) -> None: ...

    def released(self, task: Any) -> None: ...

    async def leave(self, task: Any) -> None: ...


@pytest.fixture
def executor() -> Iterator[Executor]:
    made = Executor(LOOP, "centre", slots=1)
    yield made
    made.close()


@pytest.fixture
def deployment(executor: Executor) -> Deployment:
    points = PointsFile(None)
    none: Any = None
    links: Any = NoLinks()
    builder: Any = NoFiles()
    states = States("centre", LOOP, None, points, limits=Limits(1.0, 1.0), budget=StateBudget(1))
    return Deployment(
        LOOP, {}, {}, builder, links, executor, points, none, states, none, lambda name: []
    )


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks, "PASSING", Backoff(0.05, 0.2))


class Out:
    """A query's results on their way to a table of its own."""

    def __init__(self, name: str, postgres: Postgres, deployment: Deployment, **options: Any):
        self.name = name
        self.postgres = postgres
        self._options = {"url": postgres.url, "table": name, "retry": "500ms"} | options
        self._deployment = deployment
        self.task, self.inlet = self._made(resume=False)
        start(self.task, RestartPoint((0,), 0))

    def _made(self, *, resume: bool) -> tuple[SinkTask, LiveInlet]:
        body = SinkBody(self._sink, COLUMNS, resume=resume)
        task, inlet = a_task(body, kind=SinkTask, owner=self._deployment, name=self.name)
        task.spec = task.spec.model_copy(update={"sink": Call(name="postgres")})
        self._deployment.tasks[self.name] = task
        return task, inlet

    def _sink(self, resume: bool) -> Sink:
        spark: Any = None
        context = SinkContext(
            query=self.name,
            schema=WRITTEN,
            options=self._options,
            base=Path("."),
            spark=spark,
            run="r1",
            resume=resume,
        )
        return make_sink("postgres", context)

    def give(self, first: int, count: int) -> None:
        offer(self.inlet, batch(first, count))
        self.task.arrived()

    def rows(self) -> list[int]:
        found = self.postgres.execute(f'SELECT n FROM "{self.name}" ORDER BY _pos')
        return [n for (n,) in found]

    def restarted(self) -> None:
        """As another process would go on, which knows the restart point."""
        point = self.task.restart_point()
        self.task.stop()
        self.task, self.inlet = self._made(resume=True)
        start(self.task, point)
        self.give(point.inputs[0] + 1, 20)

    @contextlib.contextmanager
    def locked(self) -> Iterator[psycopg.Connection[Any]]:
        with psycopg.connect(self.postgres.url) as other:
            other.execute(f'LOCK TABLE "{self.name}" IN ACCESS EXCLUSIVE MODE')
            yield other


def test_a_server_that_goes_away_is_waited_for(postgres: Postgres, deployment: Deployment) -> None:
    """Also by one that is killed meanwhile, and begins again while it is away."""
    stays = Out("stays", postgres, deployment)
    killed = Out("killed", postgres, deployment)
    for one in (stays, killed):
        one.give(1, 3)
        eventually(lambda one=one: one.task.restart_point() == RestartPoint((3,), 3))
    postgres.stop()
    try:
        for one in (stays, killed):
            one.give(4, 3)
            eventually(lambda one=one: one.task.away is not None, 30)
            assert one.task.state == "running"
        killed.restarted()
        eventually(lambda: killed.task.away is not None, 30)
        stays.give(7, 3)
    finally:
        postgres.start()
    eventually(lambda: stays.rows() == list(range(1, 10)), 30)
    eventually(lambda: killed.rows() == list(range(1, 24)), 30)
    eventually(lambda: stays.task.away is None and killed.task.away is None)
    for one in (stays, killed):
        LOOP.run(deployment.drop(DropTasks((one.name,), ())))


def test_a_lock_holds_up_one_sink_and_no_other(postgres: Postgres, deployment: Deployment) -> None:
    locked, other = (Out(name, postgres, deployment) for name in ("locked", "other"))
    with locked.locked():
        locked.give(1, 3)
        eventually(lambda: locked.task.busy)
        for first in (1, 4, 7):
            begun = time.monotonic()
            other.give(first, 3)
            eventually(lambda last=first + 2: other.rows() == list(range(1, last + 1)))
            assert time.monotonic() - begun < 5
        eventually(lambda: locked.task.away is not None, 20)
        assert "has it locked" in locked.task.report().away.reason
    eventually(lambda: locked.rows() == [1, 2, 3], 20)
    for one in (locked, other):
        LOOP.run(deployment.drop(DropTasks((one.name,), ())))


@pytest.mark.parametrize("retry", ["500ms", "100s"], ids=["is away", "hangs"])
def test_a_drop_does_not_wait_for_a_lock(
    postgres: Postgres, deployment: Deployment, retry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing is written after it has been answered, whenever the lock goes. Meanwhile other
    queries come and go at the site."""
    monkeypatch.setattr("anabranch.site.deployment.GRACE_S", 0.5)
    name = f"dropped_{retry}"
    hung, other = Out(name, postgres, deployment, retry=retry), Out("quick", postgres, deployment)
    with hung.locked():
        hung.give(1, 3)
        eventually(lambda: hung.task.away is not None if retry == "500ms" else hung.task.busy, 20)
        time.sleep(0.3)
        begun = time.monotonic()
        dropping = threading.Thread(
            target=LOOP.run, args=(deployment.drop(DropTasks((name,), ())),)
        )
        dropping.start()
        LOOP.run(deployment.drop(DropTasks(("quick",), ())))
        assert time.monotonic() - begun < 5
        assert other.task.state == "stopped"
        dropping.join(20)
        assert time.monotonic() - begun < 10
        assert name not in deployment.tasks
    time.sleep(1.0)
    assert hung.rows() == []
