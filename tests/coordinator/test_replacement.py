"""Moving what should be elsewhere: several at once, taken over one after the other."""

from __future__ import annotations

from typing import Any

from anabranch.coordinator.base.reports import Moved, Replan
from anabranch.coordinator.placement.replacement import AT_ONCE, Replacement
from anabranch.errors import PlacementError, TaskError
from anabranch.runtime.base import Mutex
from tests.link.support import LOOP


class FakeControl:
    """Moves take a moment; the one called `bad` fails."""

    def __init__(self) -> None:
        self.ready = self.most = self.ruling = 0
        self.order: list[str] = []

    def mover(self) -> FakeControl:
        return self

    async def timed(self, task: str, site: str, taking_over: Mutex) -> float:
        self.ready += 1
        self.most = max(self.most, self.ready)
        await LOOP.sleep(0.01)
        async with taking_over:
            self.ruling += 1
            assert self.ruling == 1
            await LOOP.sleep(0.001)
            self.ruling -= 1
            self.ready -= 1
            if task == "bad":
                raise TaskError("it does not catch up")
            self.order.append(task)
        return 12.0

    async def follow(self) -> list[tuple[str, str, str]]:
        return [("x", "c", "d")]


class FakePlacing:
    def __init__(self, *tasks: str) -> None:
        self.tasks = tasks
        self.told = 0

    def again(self) -> Replan:
        if not self.tasks:
            raise PlacementError("no site can take it")
        return Replan(10.0, 4.0, tuple(Moved(task, "a", "b") for task in self.tasks))

    def moved(self) -> None:
        self.told += 1


def replacement(control: Any, placing: Any, every_s: float = 0.0, **more: Any) -> Replacement:
    return Replacement(LOOP, control, placing, every_s, **more)


def test_one_that_fails_stays_and_the_others_move() -> None:
    placing = FakePlacing("x", "bad", "y")
    done = LOOP.run(replacement(FakeControl(), placing).run())
    assert [(one.task, one.pause_ms, one.problem) for one in done.moves] == [
        ("x", 12.0, ""),
        ("bad", None, "it does not catch up"),
        ("y", 12.0, ""),
    ]
    assert done.standbys == (Moved("x", "c", "d"),)
    assert placing.told == 1
    assert done.saved == 0.6


def test_a_dry_run_moves_nothing() -> None:
    control, placing = FakeControl(), FakePlacing("x")
    assert LOOP.run(replacement(control, placing).run(dry_run=True)).moves
    assert (control.order, placing.told) == ([], 0)


def test_so_many_at_once_and_no_more() -> None:
    control = FakeControl()
    names = [f"q{n}" for n in range(2 * AT_ONCE + 1)]
    done = LOOP.run(replacement(control, None).move([Moved(one, "a", "b") for one in names]))
    assert [one.task for one in done] == names
    assert control.most == AT_ONCE


def test_by_itself_every_so_often_and_a_problem_is_told_once() -> None:
    said: list[str] = []
    never = replacement(FakeControl(), FakePlacing("x"), say=said.append)
    often = replacement(FakeControl(), FakePlacing(), 1e-9, say=said.append)

    LOOP.run(_looks(never, 3))
    LOOP.run(_looks(often, 3))
    assert said == ["nothing could be placed anew: no site can take it"]
    soon = replacement(FakeControl(), FakePlacing("x", "bad"), 1e-9, say=said.append)
    LOOP.run(_looks(soon, 1))
    assert len(said) == 1, "one look alone may see a moment's noise"
    LOOP.run(_looks(soon, 1))
    assert said[1:] == [
        "moved x from a to b",
        "bad from a to b: it does not catch up",
        "the standby of x went from c to d",
    ]


async def _looks(replacement: Replacement, times: int) -> None:
    for _ in range(times):
        await LOOP.sleep(0.001)
        replacement.look()
        while replacement.busy:
            await LOOP.sleep(0.001)
