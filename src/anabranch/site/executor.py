"""Runs a site's task instances: earliest deadline first, `slots` at a time."""

from __future__ import annotations

import threading
import time
from enum import Enum

from anabranch.deadline.edf import EdfQueue
from anabranch.site.task import Task


class _Seen(Enum):
    QUEUED = 1
    RUNNING = 2


class Executor:
    """A task has at most one instance queued or running, so its inputs are processed in order; what
    arrives meanwhile is taken by the next instance, which is how batches grow under load."""

    def __init__(self, site: str, slots: int) -> None:
        self._queue: EdfQueue[Task] = EdfQueue()
        self._seen: dict[Task, _Seen] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._workers = [
            threading.Thread(target=self._work, name=f"{site}-slot-{n}", daemon=True)
            for n in range(slots)
        ]
        for worker in self._workers:
            worker.start()

    def consider(self, task: Task) -> None:
        """Queue an instance of `task` if it has work and none is queued or running."""
        with self._changed:
            if task not in self._seen and not self._closed and task.ready():
                self._seen[task] = _Seen.QUEUED
                self._queue.push(task, arrival=time.monotonic_ns())
                self._changed.notify_all()

    def forget(self, task: Task) -> None:
        """Wait until no instance of `task` runs; none will run after (its state is not running)."""
        with self._changed:
            while self._seen.get(task) is _Seen.RUNNING and not self._closed:
                self._changed.wait(0.1)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for worker in self._workers:
            worker.join(timeout=10)

    def _work(self) -> None:
        while True:
            with self._changed:
                while not (self._closed or len(self._queue)):
                    self._changed.wait()
                if self._closed:
                    return
                task = self._queue.pop()
                self._seen[task] = _Seen.RUNNING
            if task.ready():
                task.run_instance()
            with self._changed:
                del self._seen[task]
                self._changed.notify_all()
            self.consider(task)
