"""The runtime of a real process: its clock, its threads, and the one place where they meet.

One thread waits for time to pass. Any other thread may enter (`with loop:`): it does its work and
then takes the steps that this made due, so a batch that a thread has read is in its task's queue
without changing threads.
"""

from __future__ import annotations

import functools
import heapq
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, Self, TypeVar

from anabranch.errors import SiteError
from anabranch.runtime.base import Runtime
from anabranch.runtime.troubles import Troubles, end_process

T = TypeVar("T")
CALLS = 48
"""Threads for what blocks: calls of other sites, Spark, the disk."""
IDLE_S = 10.0
_LOOK_S = 1.0
GATHER_S = 0.001
"""Steps that fall due within this time are taken together."""


class Loop(Runtime):
    def __init__(self, name: str = "loop") -> None:
        super().__init__()
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._owner: int | None = None
        self._depth = 0
        self._steps: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._timers: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0
        self._closed = False
        self._pool = _Pool(CALLS)
        threading.Thread(target=self._turn, name=name, daemon=True).start()

    def now(self) -> float:
        return time.monotonic()

    def later(self, seconds: float, do: Callable[..., None], *args: Any) -> None:
        with self:
            if seconds <= 0:
                self._steps.append((do, args))
                return
            self._count += 1
            heapq.heappush(self._timers, (time.monotonic() + seconds, self._count, do, args))
            if self._timers[0][1] == self._count:
                self._changed.notify()

    async def blocking(self, do: Callable[..., T], *args: Any) -> T:
        done = self.signal()
        outcomes: list[tuple[T | None, BaseException | None]] = []

        def work() -> None:
            try:
                outcome: tuple[T | None, BaseException | None] = do(*args), None
            except BaseException as error:
                outcome = None, error
            with self:
                outcomes.append(outcome)
                done.notify()

        self._pool.run(work)
        while not outcomes:
            await done.wait()
        value, error = outcomes[0]
        if error:
            raise error
        return value  # type: ignore[return-value]

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._owner == threading.get_ident():
            raise RuntimeError("a coroutine awaits another, it does not run it")
        done = threading.Event()
        outcome: list[tuple[T | None, BaseException | None]] = []

        async def whole() -> None:
            try:
                outcome.append((await coroutine, None))
            except Exception as error:
                outcome.append((None, error))
            done.set()

        with self:
            self.spawn(whole())
        while not done.wait(_LOOK_S):
            if self._closed:
                raise SiteError("this process is about to end")
        value, error = outcome[0]
        if error:
            raise error
        return value  # type: ignore[return-value]

    def chance(self, least: float, most: float) -> float:
        return random.uniform(least, most)

    def condition(self) -> threading.Condition:
        """A condition for threads that wait for each other here; they call `wait_for_it` instead of
        its own `wait`.
        """
        return threading.Condition(self._lock)

    def wait_on(self, condition: threading.Condition, seconds: float | None = None) -> None:
        """Leaves, waits, and enters again, for a thread that has entered once."""
        self._leave()
        self._owner, self._depth = None, 0
        condition.wait(seconds)
        self._owner, self._depth = threading.get_ident(), 1

    def close(self) -> None:
        with self:
            self._closed = True
            self._changed.notify()

    # -- coming in -------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._lock.acquire()
        self._depth += 1
        self._owner = threading.get_ident()
        return self

    def __exit__(self, *error: object) -> None:
        if self._depth == 1:
            self._leave()
            self._owner = None
        self._depth -= 1
        self._lock.release()

    def _leave(self) -> None:
        """Takes the steps that are due, and leaves."""
        while self._steps:
            do, args = self._steps.popleft()
            try:
                do(*args)
            except Exception as error:
                self.troubles.happened("a step of the loop", error, time.monotonic())

    def _turn(self) -> None:
        """Runs the thread without which no time passes for any coroutine."""
        try:
            self._run()
        except BaseException as error:
            end_process("the loop", error)

    def _run(self) -> None:
        with self:
            while not self._closed:
                now = time.monotonic()
                while self._timers and self._timers[0][0] <= now:
                    _, _, do, args = heapq.heappop(self._timers)
                    self._steps.append((do, args))
                self._leave()
                left = self._timers[0][0] - time.monotonic() if self._timers else None
                if left is None or left > 0:
                    self.wait_on(self._changed, None if left is None else max(left, GATHER_S))


class _Pool:
    """Threads that start when there is work and end when there is none; none outlives the
    process.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._work: deque[Callable[[], None]] = deque()
        self._changed = threading.Condition()
        self._threads = 0
        self._idle = 0

    def run(self, work: Callable[[], None]) -> None:
        with self._changed:
            self._work.append(work)
            if self._idle < len(self._work) and self._threads < self._most:
                thread = threading.Thread(target=self._serve, name="call", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # no more threads: the next that is free does it, if any is
                    if not self._threads:
                        self._work.remove(work)
                        raise
                else:
                    self._threads += 1
            else:
                self._changed.notify()

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._idle += 1
                if not self._work and not self._changed.wait(IDLE_S) and not self._work:
                    self._idle -= 1
                    self._threads -= 1
                    return
                self._idle -= 1
                if not self._work:
                    continue
                work = self._work.popleft()
            work()


@functools.cache
def process_loop() -> Loop:
    """The loop of this process."""
    return Loop()


class Flag(Protocol):
    """What we need of a thread's Event."""

    def is_set(self) -> bool: ...
    def set(self) -> None: ...
    def clear(self) -> None: ...
    def wait(self, timeout: float | None = None) -> bool: ...


class ThreadTime:
    """The time by which a waiting thread goes; a simulation has its own."""

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def event(self) -> Flag:
        return threading.Event()


REAL_TIME = ThreadTime()


def supervised(
    name: str,
    run: Callable[[], None],
    stopped: threading.Event | None = None,
    troubles: Troubles | None = None,
) -> threading.Thread:
    """A thread, not yet started, that ends when `run` returns. If `run` raises, it is called again
    after a pause, unless all has `stopped`; each time is counted among the process's `troubles`.
    """
    counted = troubles or process_loop().troubles
    stop = stopped or threading.Event()

    def whole() -> None:
        while not stop.is_set():
            try:
                run()
                return
            except Exception as error:
                pause_s = counted.happened(name, error, time.monotonic())
                stop.wait(pause_s * random.uniform(0.5, 1.0))

    return threading.Thread(target=whole, name=name, daemon=True)
