"""Limits how long an instance of a task may run."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from anabranch.runtime.base import Runtime
from anabranch.site.tasks.task import Task

LOOK_S = 0.5
LEAST_S = 5.0
"""Whatever the deadline: a JVM that compiles, or collects garbage, is not a query that hangs."""
TIMES_DEADLINE = 20


def limit_s(instance_limit_s: float, deadline_us: int | None) -> float:
    """How long an instance may run. A query with a deadline waits for less time, because late
    results are of no use.
    """
    if deadline_us is None:
        return instance_limit_s
    return min(instance_limit_s, max(LEAST_S, TIMES_DEADLINE * deadline_us / 1e6))


class InstanceLimits:
    """Looks at the `tasks` of a site. Only time that we have seen pass counts: after a process or
    machine was paused, no instance counts as too slow for it.
    """

    def __init__(
        self, runtime: Runtime, name: str, tasks: Callable[[], Iterable[Task]], most_s: float
    ) -> None:
        self._runtime = runtime
        self._tasks = tasks
        self._most_s = most_s
        self._coroutine = runtime.supervise(f"limits of instances of {name}", self._run)

    def close(self) -> None:
        self._coroutine.cancel()

    async def _run(self) -> None:
        while True:
            await self._runtime.sleep(LOOK_S)
            for task in list(self._tasks()):
                task.ran(LOOK_S, limit_s(self._most_s, task.spec.deadline_us))
