"""What coroutines may rely on, whichever runtime drives them: a process's, or a virtual one."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from anabranch.errors import AnabranchError, SiteError
from anabranch.runtime.base import Bell, Mutex, Runtime
from anabranch.runtime.loop import Loop
from simulation.clock import Clock, Process

Drive = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(params=["process", "virtual"])
def driven(request: pytest.FixtureRequest) -> Any:
    """A runtime, and what runs a coroutine in it to its end."""
    if request.param == "process":
        loop = Loop("test")
        yield loop, loop.run
        loop.close()
        return
    clock = Clock()
    process = Process("virtual", clock, Random(1))

    def drive(coroutine: Coroutine[Any, Any, Any]) -> Any:
        begun = process.spawn(coroutine)
        begun.heard = True
        assert clock.run(1_000_000, lambda: begun.done)
        joined = process.spawn(begun.join())
        joined.heard = True
        clock.run(1_000_000, lambda: joined.done)
        if joined._error:
            raise joined._error
        return joined._value

    yield process, drive


def test_a_signal_wakes_those_who_wait_and_nobody_who_comes_later(
    driven: tuple[Runtime, Drive],
) -> None:
    runtime, drive = driven
    signal, woken = runtime.signal(), []

    async def wait(name: str, seconds: float | None) -> None:
        woken.append((name, await signal.wait(seconds)))

    async def whole() -> None:
        early = [runtime.spawn(wait(name, None)) for name in "ab"]
        await runtime.sleep(0.01)
        signal.notify()
        late = runtime.spawn(wait("late", 0.02))
        for one in (*early, late):
            await one.join()

    drive(whole())
    assert woken == [("a", True), ("b", True), ("late", False)]


def test_a_bell_that_rings_while_nobody_listens_is_heard(driven: tuple[Runtime, Drive]) -> None:
    runtime, drive = driven
    bell = Bell(runtime)

    async def whole() -> list[bool]:
        bell.ring()
        bell.ring()
        return [await bell.heard(1), await bell.heard(0.01)]

    assert drive(whole()) == [True, False]


def test_a_mutex_lets_one_in_at_a_time_and_is_free_after_an_error_and_a_cancel(
    driven: tuple[Runtime, Drive],
) -> None:
    runtime, drive = driven
    mutex, inside, most = Mutex(runtime), [0], [0]

    async def enter(fails: bool = False, seconds: float = 0.005) -> None:
        async with mutex:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            try:
                await runtime.sleep(seconds)
                if fails:
                    raise SiteError("gone")
            finally:
                inside[0] -= 1

    async def whole() -> None:
        for one in [runtime.spawn(enter(fails)) for fails in (False, True, False)]:
            await one.outcome()
        held = runtime.spawn(enter(seconds=100))
        await runtime.sleep(0.001)
        assert mutex.held
        held.cancel()
        assert not mutex.held
        await enter()

    drive(whole())
    assert most == [1]
    assert inside == [0]


def test_a_coroutine_that_is_cancelled_runs_its_finally_and_wakes_who_joins_it(
    driven: tuple[Runtime, Drive],
) -> None:
    runtime, drive = driven
    steps: list[str] = []

    async def long() -> None:
        try:
            await runtime.sleep(100)
            steps.append("never")
        finally:
            steps.append("finally")

    async def whole() -> None:
        begun = runtime.spawn(long())
        joins = runtime.spawn(begun.join())
        await runtime.sleep(0.001)
        begun.cancel()
        begun.cancel()
        await joins.join()
        assert begun.done

    drive(whole())
    assert steps == ["finally"]


def test_one_that_cancels_itself_goes_no_further_than_its_next_wait(
    driven: tuple[Runtime, Drive],
) -> None:
    runtime, drive = driven
    steps: list[str] = []

    async def suicidal() -> None:
        await runtime.sleep(0.005)
        me[0].cancel()
        steps.append("before")
        await runtime.sleep(0)
        steps.append("never")

    me = [runtime.spawn(suicidal())]
    drive(me[0].join())
    drive(_settled(runtime))
    assert steps == ["before"]


async def _settled(runtime: Runtime) -> None:
    await runtime.sleep(0.005)


def test_outcomes_are_in_order_and_wait_for_the_last(driven: tuple[Runtime, Drive]) -> None:
    runtime, drive = driven

    async def give(value: int, seconds: float) -> int:
        await runtime.sleep(seconds)
        if value < 0:
            raise SiteError(f"site {value} is away")
        return value

    async def whole() -> list[int | AnabranchError]:
        return await runtime.outcomes([give(1, 0.02), give(-2, 0.0), give(3, 0.001)])

    first, second, third = drive(whole())
    assert (first, third) == (1, 3)
    assert isinstance(second, SiteError)


def test_a_bug_is_no_outcome(driven: tuple[Runtime, Drive]) -> None:
    runtime, drive = driven

    async def bug() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        drive(runtime.outcomes([bug()]))


def test_what_blocks_gives_its_value_or_raises(driven: tuple[Runtime, Drive]) -> None:
    runtime, drive = driven

    def divide(by: int) -> float:
        return 1 / by

    assert drive(runtime.blocking(divide, 2)) == 0.5
    with pytest.raises(ZeroDivisionError):
        drive(runtime.blocking(divide, 0))


def test_the_clock_only_goes_forward_while_one_sleeps(driven: tuple[Runtime, Drive]) -> None:
    runtime, drive = driven

    async def whole() -> tuple[float, float]:
        before = runtime.now()
        await runtime.sleep(0.02)
        return before, runtime.now()

    before, after = drive(whole())
    assert after - before >= 0.019
