"""Runs task instances: earliest deadline first or oldest tuple first, so many at a time; and beside
them, one at a time, those that write to the world, which may take its time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from anabranch.deadline.edf import NO_DEADLINE
from anabranch.runtime.loop import Loop
from anabranch.runtime.threads import supervised
from anabranch.site.tasks.queue import Policy, Queue, Runnable
from anabranch.site.tasks.writers import Writers

T = TypeVar("T")
LOOK_S = 0.5
"""How often whoever waits for a slot looks whether there still are any."""


class Errand:
    """Something else that uses Spark, run once, in a slot, when its turn has come. `due_us` says
    when that is: at the latest then, or whenever nothing is due."""

    sub_deadline_us = None
    writes = False

    def __init__(self, do: Callable[[], None], due_us: int = NO_DEADLINE) -> None:
        self._do = do
        self._due_us = due_us
        self._error: BaseException | None = None
        self._withdrawn = False
        self._done = threading.Event()

    def ready(self) -> bool:
        return not (self._withdrawn or self._done.is_set())

    def due(self, now_us: int) -> tuple[int, int]:
        """What is due is as old as can be, for FIFO."""
        return self._due_us, 0 if self._due_us < NO_DEADLINE else now_us

    def laxity_us(self) -> int | None:
        return None

    def run_instance(self, allowed_us: int | None = None) -> None:
        try:
            if not self._withdrawn:
                self._do()
        except BaseException as error:
            self._error = error
        finally:
            self._done.set()

    def wait(self, patience_s: float) -> bool:
        """Whether it has been done; raises what it raised."""
        done = self._done.wait(patience_s)
        if self._error:
            raise self._error
        return done

    def withdraw(self) -> None:
        """It is not begun any more."""
        self._withdrawn = True


class Executor:
    """A site's slots. Sites on one Spark share one queue (`shared`: what they share; without it the
    queue is its own)."""

    _queues: dict[int, tuple[Queue, int]] = {}  # noqa: RUF012
    """By what shares them, with how many do."""

    def __init__(
        self,
        runtime: Loop,
        site: str,
        slots: int,
        policy: Policy = "edf",
        shared: object | None = None,
    ) -> None:
        self._runtime = runtime
        self._key = None if shared is None else id(shared)
        self._leaving = threading.Event()
        self._closed = False
        self._site = site
        self._writers = Writers(runtime, site, policy)
        self._workers: list[threading.Thread] = []
        with runtime:
            self.queue = self._joined(policy)
        for n in range(slots):
            self._start(self.queue, f"slot-{n}")

    def _start(self, queue: Queue, name: str) -> None:
        worker = supervised(
            f"{self._site}-{name}",
            lambda: queue.serve(self._leaving),
            self._leaving,
            self._runtime.troubles,
        )
        self._workers.append(worker)
        worker.start()

    def _joined(self, policy: Policy) -> Queue:
        if self._key is None:
            return Queue(self._runtime, policy)
        queue, users = self._queues.get(self._key, (None, 0))
        queue = queue or Queue(self._runtime, policy)
        self._queues[self._key] = (queue, users + 1)
        return queue

    def consider(self, task: Runnable) -> None:
        if not self._closed:
            (self._writers if task.writes else self.queue).consider(task)

    def run(
        self, do: Callable[[], T], due_us: int = NO_DEADLINE, patience_s: float | None = None
    ) -> T | None:
        """Have something else that uses Spark done in a slot, so that it runs beside nothing, and
        wait for that. None if `patience_s` pass before its turn comes, or the slots are closed."""
        given: list[T] = []
        errand = Errand(lambda: given.append(do()), due_us)
        self.consider(errand)
        end = time.monotonic() + (float("inf") if patience_s is None else patience_s)
        while not errand.wait(min(LOOK_S, max(0.0, end - time.monotonic()))):
            if self._closed or (time.monotonic() >= end and not given):
                errand.withdraw()
                break
        return given[0] if given else None

    def close(self) -> None:
        """Its slots end with what they run. Idempotent."""
        with self._runtime:
            if self._key is not None and not self._closed:
                queue, users = self._queues.pop(self._key)
                if users > 1:
                    self._queues[self._key] = (queue, users - 1)
            self._closed = True
            self._leaving.set()
            self.queue.ring()
            self._writers.close()
        for worker in self._workers:
            worker.join(timeout=10)
