"""Virtual time, and processes whose threads are generators.

A thread yields a number of milliseconds to sleep, or (signal, milliseconds or None) to wait for a
signal; the latter gives True if the signal came. Nothing happens between two yields.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator
from typing import Any

Wish = int | tuple["Signal", int | None]
Steps = Generator[Wish, Any, Any]


class Clock:
    """Runs what is due, in order of time and then of asking."""

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


class Signal:
    """Wakes those who wait at that moment."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[tuple[Thread, int]] = []

    def wait(self, thread: Thread, turn: int) -> None:
        self._waiting.append((thread, turn))

    def notify(self) -> None:
        waiting, self._waiting = self._waiting, []
        for thread, turn in waiting:
            if thread.turn == turn:
                thread.process.clock.after(0, thread.resume, turn, True)


class Thread:
    """Of one process, whose death it does not outlive."""

    __slots__ = ("_steps", "process", "turn")

    def __init__(self, process: Process, steps: Steps) -> None:
        self.process = process
        self.turn = 0
        self._steps: Steps | None = steps

    @property
    def alive(self) -> bool:
        return self._steps is not None

    def resume(self, turn: int, value: object) -> None:
        """Whoever wakes it first in this turn does; the others come too late."""
        if turn != self.turn or self._steps is None or not self.process.alive:
            return
        if self.process.paused:
            self.process.deferred.append((self.resume, (turn, value)))
            return
        self.turn += 1
        try:
            wish = self._steps.send(value)
        except StopIteration:
            self._steps = None
            return
        clock = self.process.clock
        if isinstance(wish, int):
            clock.after(wish, self.resume, self.turn, False)
            return
        signal, limit = wish
        signal.wait(self, self.turn)
        if limit is not None:
            clock.after(limit, self.resume, self.turn, False)


class Process:
    """What dies and is paused as one."""

    def __init__(self, name: str, clock: Clock) -> None:
        self.name = name
        self.clock = clock
        self.alive = True
        self.paused = False
        self.deferred: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        """What would have happened to it while it was paused."""

    def spawn(self, steps: Steps) -> Thread:
        thread = Thread(self, steps)
        self.clock.after(0, thread.resume, 0, None)
        return thread

    def run(self, do: Callable[..., None], *args: Any) -> None:
        """Now; when it goes on, if it is paused; never, if it is dead."""
        if self.paused:
            self.deferred.append((do, args))
        elif self.alive:
            do(*args)

    def go_on(self) -> None:
        """As if nothing had happened."""
        self.paused = False
        late, self.deferred = self.deferred, []
        for do, args in late:
            self.clock.after(0, self.run, do, *args)
