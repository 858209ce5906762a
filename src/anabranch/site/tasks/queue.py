"""What waits to be run at a site: earliest deadline first or oldest tuple first."""

from __future__ import annotations

import threading
import time
from typing import Literal, Protocol

from anabranch.deadline.edf import NO_DEADLINE, EdfQueue
from anabranch.deadline.laxity import Laxities
from anabranch.runtime.loop import Loop

Policy = Literal["edf", "fifo"]
REFRESH_S = 2.0
"""How often it is asked what tasks have to spare."""


class Runnable(Protocol):
    """What is queued. Hashable by identity."""

    @property
    def sub_deadline_us(self) -> int | None: ...
    @property
    def writes(self) -> bool:
        """To the world, without Spark: it needs no slot."""

    def ready(self) -> bool: ...
    def due(self, now_us: int) -> tuple[int, int]:
        """The absolute deadline, and when the oldest tuple entered the system."""

    def laxity_us(self) -> int | None: ...
    def run_instance(self, allowed_us: int | None) -> None: ...


class Queue:
    """A task has at most one instance queued or running, so its inputs are processed in order; what
    arrives meanwhile is taken by the next instance, which is how batches grow under load. A queued
    task moves up when something more urgent arrives for it."""

    def __init__(self, runtime: Loop, policy: Policy) -> None:
        self._runtime = runtime
        self._policy = policy
        self._waiting: EdfQueue[Runnable] = EdfQueue()
        self._running: set[Runnable] = set()
        self._urgent: set[Runnable] = set()
        self._laxities = Laxities()
        self._refreshed = 0.0
        self._changed = runtime.condition()
        self.idle = 0
        """Threads that wait for something to do."""
        self.ended = 0
        """Instances that have ended."""

    def consider(self, task: Runnable) -> None:
        """Queue an instance of `task` if it has work and none runs; move it up if it is queued."""
        with self._runtime:
            if task in self._running or not task.ready():
                return
            if task.sub_deadline_us is not None:
                self._urgent.add(task)
            deadline, oldest = task.due(time.time_ns() // 1000)
            by = deadline if self._policy == "edf" else NO_DEADLINE
            self._waiting.push(task, arrival=oldest, deadline=by)
            self._changed.notify()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def serve(self, leaving: threading.Event, *, spare: bool = False) -> None:
        """Run what is queued, in this thread, until it is to leave and somebody has rung; if it is
        a `spare` one, until another waits for something to do as well."""
        while True:
            with self._runtime:
                while not (leaving.is_set() or len(self._waiting)):
                    if spare and self.idle:
                        return
                    self.idle += 1
                    self._runtime.wait_on(self._changed)
                    self.idle -= 1
                if leaving.is_set():
                    self._changed.notify()  # what woke us is somebody else's to do
                    return
                task = self._waiting.pop()
                self._running.add(task)
                allowed = self._allowed(task)
            try:
                task.run_instance(allowed)
            finally:
                with self._runtime:
                    self._running.discard(task)
                    self.ended += 1
                    self.consider(task)

    def ring(self) -> None:
        with self._runtime:
            self._changed.notify_all()

    def _allowed(self, task: Runnable) -> int | None:
        """How long it may run for the sake of those that are more urgent."""
        if not self._urgent or self._policy == "fifo":
            return None
        now = time.monotonic()
        if now - self._refreshed > REFRESH_S:
            self._refreshed = now
            # Those that have been dropped have no sub-deadline any more.
            known = {one: one.sub_deadline_us for one in self._urgent}
            self._urgent = {one for one, deadline in known.items() if deadline is not None}
            pairs = [(known[one], one.laxity_us()) for one in self._urgent]
            self._laxities = Laxities(
                (d, laxity) for d, laxity in pairs if d and laxity is not None
            )
        return self._laxities.allowed(task.sub_deadline_us or NO_DEADLINE)
