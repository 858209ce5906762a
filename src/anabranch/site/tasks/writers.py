"""A site's threads that write to the world, which may take its time or take nothing at all."""

from __future__ import annotations

import threading

from anabranch.runtime.loop import Loop
from anabranch.runtime.threads import supervised
from anabranch.site.tasks.queue import Policy, Queue, Runnable

PATIENCE_S = 0.05
"""How long what waits to be written waits for those that write, before it gets another thread."""


class Writers:
    """One thread as long as writing is quick: more would only take turns. When something waits and
    none of those that write has ended anything for a while, there is one more: so one sink that
    hangs holds up no other, however many do. Threads of which there are too many end."""

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
        """They end with what they write; nobody waits for them."""
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
