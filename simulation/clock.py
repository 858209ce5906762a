"""Virtual time, and the processes that live in it: a runtime each."""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, TypeVar

from anabranch.errors import StorageError
from anabranch.runtime.base import Runtime, Spawned
from anabranch.runtime.troubles import ENVIRONMENT

T = TypeVar("T")
FAILED_S = 0.2
"""Pause before what failed by its environment is begun again."""
FAILURES: tuple[Callable[[], Exception], ...] = (
    lambda: StorageError("No space left on device"),
    lambda: OSError(24, "Too many open files"),
    lambda: sqlite3.OperationalError("database or disk is full"),
)


class Killed(BaseException):
    """The process has died in the middle of a call, for so long; nothing catches that."""

    def __init__(self, lasts: int) -> None:
        super().__init__(lasts)
        self.lasts = lasts


class Violation(Exception):
    """Something happened that never may."""


class Clock:
    """Runs what is due, in order of time and then of asking. Milliseconds."""

    def __init__(self) -> None:
        self.now = 0
        self.events = 0
        self._due: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []

    def after(self, delay: int, do: Callable[..., None], *args: Any) -> None:
        self.events += 1
        heapq.heappush(self._due, (self.now + delay, self.events, do, args))

    def run(self, until: int, done: Callable[[], bool]) -> bool:
        """False if it is not done in time."""
        due = self._due
        while due and not done():
            if due[0][0] > until:
                return False
            self.now, _, do, args = heapq.heappop(due)
            do(*args)
        return done()


class Process(Runtime):
    """What dies and is paused as one. Its own clock is `ahead` of the others' by so much."""

    def __init__(self, name: str, clock: Clock, rng: Random, ahead: int = 0) -> None:
        super().__init__()
        self.name = name
        self.clock = clock
        self.alive = True
        self.paused = False
        self._begun: list[Spawned[Any]] = []
        self.rng = rng
        self._ahead = ahead
        self.wall_ahead = ahead
        """By so much its wall clock is ahead, which somebody may set."""
        self.deferred: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        """What would have happened to it while it was paused."""
        self.failing = 0.0
        """The share of calls that block that fail."""
        self.troubled = False
        """Some have."""
        self.under_way: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        """Calls that block."""
        self.kill: Callable[[int], None] = lambda lasts: None
        """Have it die, for so long."""
        self._steps_left = 0
        self._end: Callable[[], None] | None = None

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str = "") -> Spawned[T]:
        begun = super().spawn(coroutine, name)
        self._begun.append(begun)
        return begun

    def bury(self) -> None:
        """Nothing of it goes on, not even by being forgotten."""
        self.alive = False
        for one in self._begun:
            one.cancel()

    def now(self) -> float:
        return (self.clock.now + self._ahead) / 1000

    def later(self, seconds: float, do: Callable[..., None], *args: Any) -> None:
        delay = (round(seconds * 1000) or 1) if seconds > 0 else 0
        self.clock.after(delay, self.do, do, *args)

    def wall_ns(self) -> int:
        return (self.clock.now + self.wall_ahead) * 1_000_000

    async def in_thread(self, do: Callable[..., T], *args: Any) -> T:
        """A crash may come first, or in the middle of it."""
        await self._takes_time(do, args)
        return await self._done(do, args)

    async def blocking(self, do: Callable[..., T], *args: Any) -> T:
        """As `in_thread`; and it may fail."""
        await self._takes_time(do, args)
        if self.failing and self.rng.random() < self.failing:
            self.troubled = True
            if self.rng.random() < 0.5:
                await self._done(do, args)
            raise self.rng.choice(FAILURES)()
        return await self._done(do, args)

    async def _done(self, do: Callable[..., T], args: tuple[Any, ...]) -> T:
        try:
            return do(*args)
        except Killed as killed:
            self.kill(killed.lasts)
            await self.sleep(0)
            raise AssertionError("a dead process goes on") from None

    async def _takes_time(self, do: Callable[..., Any], args: tuple[Any, ...]) -> None:
        if self.rng.random() < 0.5:
            call = do, args
            self.under_way.append(call)
            try:
                await self.sleep(self.rng.randint(1, 3) / 1000)
            finally:
                self.under_way.remove(call)

    def fails_now(self) -> bool:
        """Whether the machine refuses what is asked of it."""
        if not self.failing or self.rng.random() >= self.failing:
            return False
        self.troubled = True
        return True

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        raise NotImplementedError("there are no threads here")

    def chance(self, least: float, most: float) -> float:
        return self.rng.uniform(least, most)

    def crashed(self, name: str, error: Exception) -> None:
        self._must_be_environment(name, error)

    def failed(self, name: str, error: Exception) -> float:
        self._must_be_environment(name, error)
        return FAILED_S * self.chance(0.5, 1.0)

    def _must_be_environment(self, name: str, error: Exception) -> None:
        """What the machine did is survived; anything else is a bug."""
        if not isinstance(error, ENVIRONMENT):
            raise Violation(f"{self.name}, {name}: {type(error).__name__}: {error}") from error

    def do(self, do: Callable[..., None], *args: Any) -> None:
        """Now; when it goes on, if it is paused; never, if it is dead."""
        if self.paused:
            self.deferred.append((do, args))
        elif self.alive:
            do(*args)
            if self._end:
                self._count(self._end)

    def end_after(self, steps: int, end: Callable[[], None]) -> None:
        """Call `end` when it has taken so many more steps."""
        self._steps_left, self._end = steps, end

    def _count(self, end: Callable[[], None]) -> None:
        self._steps_left -= 1
        if self._steps_left <= 0:
            self._end = None
            end()

    def go_on(self) -> None:
        """As if nothing had happened."""
        self.paused = False
        late, self.deferred = self.deferred, []
        for do, args in late:
            self.clock.after(0, self.do, do, *args)
