"""How much memory the states of tasks take together in a process, and which takes too much."""

from __future__ import annotations

import os
import threading
from functools import cache

from anabranch.runtime.base import Runtime

OF_MACHINE = 0.5
"""The part of the machine's memory that states may take if nobody says how much."""


class StateBudget:
    """Tasks tell what they hold. Once that is more than `total`, the largest has to go."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._lock = threading.Lock()
        self._held: dict[object, int] = {}

    @property
    def held(self) -> int:
        with self._lock:
            return sum(self._held.values())

    def holds(self, task: object, nbytes: int) -> bool:
        """Notes that it holds so many. False if it must not: all hold too much, and none more."""
        with self._lock:
            self._held[task] = nbytes
            return sum(self._held.values()) <= self.total or nbytes < max(self._held.values())

    def forget(self, task: object) -> None:
        """It holds nothing any more. Idempotent."""
        with self._lock:
            self._held.pop(task, None)


@cache
def state_budget(runtime: Runtime, total: int | None) -> StateBudget:
    """The one of this process: sites that share it share the memory for their states."""
    return StateBudget(total or int(OF_MACHINE * _machine_bytes()))


def _machine_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
