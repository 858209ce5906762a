"""Who runs task instances in a simulation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anabranch.site.tasks.task import Task
from simulation.clock import Process

SLOW, SLOW_WRITE = 0.15, 400
"""So many writes of sinks may take so many milliseconds: others take over meanwhile."""


class SimExecutor:
    """As `site.tasks.executor`, with as many slots as there are tasks; `patience` is how long a
    lazy standby's instance waits at most. `progress` hears of every instance."""

    def __init__(
        self,
        process: Process,
        rng: Any,
        work: int,
        patience: int,
        progress: Callable[[Task], None],
    ) -> None:
        self._process = process
        self._rng = rng
        self._work = work
        self._patience = patience
        self._progress = progress
        self._seen: set[Task] = set()
        self._lazy: dict[Task, bool] = {}

    def consider(self, task: Task) -> None:
        if task not in self._seen and task.ready():
            self._seen.add(task)
            lazy = self._lazy.setdefault(task, self._rng.random() < 0.5)
            most = self._patience if lazy and task.role == "standby" else self._work
            self._process.later(self._rng.randint(0, most) / 1000, self._begin, task)

    def run(self, do: Callable[[], float], *, patience_s: float) -> float | None:
        return do()

    def close(self) -> None:
        """It dies with its process."""

    def _begin(self, task: Task) -> None:
        taken = task.take()
        if taken is None:
            self._seen.discard(task)
        else:
            slow = task.outlet is None and self._rng.random() < SLOW
            most = SLOW_WRITE if slow else self._work
            self._process.later(self._rng.randint(0, most) / 1000, self._end, task, taken)

    def _end(self, task: Task, taken: Any) -> None:
        task.give(taken, task.process(taken))
        self._seen.discard(task)
        self._progress(task)
        self.consider(task)
