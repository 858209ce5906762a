"""Runs task instances: earliest deadline first or oldest tuple first, so many at a time; and
beside them, threads that write to the world.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Literal, Protocol, TypeVar

from anabranch.deadline.urgency import NO_DEADLINE, EdfQueue, Laxities
from anabranch.runtime.loop import Loop, supervised

Policy = Literal["edf", "fifo"]
REFRESH_S = 2.0
"""How often it is asked what tasks have to spare."""


class Runnable(Protocol):
    """Something that can be queued. Hashable by identity."""

    @property
    def sub_deadline_us(self) -> int | None: ...
    @property
    def writes(self) -> bool:
        """Whether it writes to the world, without Spark: then it needs no slot."""

    def ready(self) -> bool: ...
    def due(self, now_us: int) -> tuple[int, int]:
        """The absolute deadline, and when the oldest tuple entered the system."""

    def laxity_us(self) -> int | None: ...
    def run_instance(self, allowed_us: int | None) -> None: ...


class Queue:
    """A task has at most one instance queued or running, so its inputs are processed in order. The
    next instance takes what arrives meanwhile, which is how batches grow under load. A queued task
    moves up when something more urgent arrives for it.
    """

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
        """Queues an instance of `task` if it has work and none runs; moves it up if it is
        queued.
        """
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
        """Runs what is queued, in this thread, until it must leave and somebody has rung; or, if it
        is a `spare` one, until another waits for work as well.
        """
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


PATIENCE_S = 0.05
"""How long what waits to be written waits for those that write, before it gets another thread."""


class Writers:
    """One thread as long as writing is quick: more would only take turns. When something waits and
    none of the writing threads has ended anything for a while, one more starts: so a sink that
    hangs delays no other, however many do. Threads that are too many end.
    """

    def __init__(self, runtime: Loop, site: str, policy: Policy) -> None:
        self._runtime = runtime
        self._site = site
        self._queue = Queue(runtime, policy)
        self._leaving = threading.Event()
        self._count = 0
        self._looking = False

    def consider(self, task: Runnable) -> None:
        with self._runtime:
            self._queue.consider(task)
            self._look_later()

    def close(self) -> None:
        """Lets the threads end with what they write; nobody waits for them."""
        with self._runtime:
            self._leaving.set()
            self._queue.ring()

    def _look_later(self) -> None:
        if self._queue.waiting and not self._looking:
            self._looking = True
            self._runtime.later(PATIENCE_S if self._count else 0.0, self._look, self._queue.ended)

    def _look(self, ended: int) -> None:
        self._looking = False
        queue = self._queue
        if queue.waiting and not queue.idle and queue.ended == ended:
            self._begin()
        self._look_later()

    def _begin(self) -> None:
        self._count += 1
        supervised(
            f"{self._site}-sinks-{self._count}", self._serve, self._leaving, self._runtime.troubles
        ).start()

    def _serve(self) -> None:
        self._queue.serve(self._leaving, spare=True)


T = TypeVar("T")
LOOK_S = 0.5
"""How often whoever waits for a slot looks whether there still are any."""


class Errand:
    """Other work that uses Spark, run once, in a slot, when its turn has come. `due_us` says when
    that is: at the latest then, or whenever nothing is due.
    """

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
        """When it is due. For FIFO, due work counts as the oldest possible."""
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
        """Waits whether it gets done; raises what it raised."""
        done = self._done.wait(patience_s)
        if self._error:
            raise self._error
        return done

    def withdraw(self) -> None:
        """Withdraws it: it is not begun any more."""
        self._withdrawn = True


class Executor:
    """A site's slots. Sites on one Spark share one queue; `shared` is what they share, and without
    it the queue is its own.
    """

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
        """Runs other work that uses Spark in a slot, so that it runs beside nothing, and waits for
        its result. None if `patience_s` pass before its turn comes, or the slots are closed.
        """
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
        """Closes the slots, which end with what they run. Calling it again does no harm."""
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
