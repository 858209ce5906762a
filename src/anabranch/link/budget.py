"""Bytes that all inlets of a process hold together, so that memory does not grow with the hops."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Budget:
    """Counts what waits in the inlets that share it and what running instances took from them.

    A single busy inlet may use all of it, several share it. It paces and does not allocate: an
    inlet with little waiting goes beyond it, else those that used it up might wait for ever for the
    ones behind them. `changed` is the one lock of all these inlets; hold it to call anything here.

    `excess` tells how much more memory the process has come to take than it should. The budget
    gives way by twice that, down to a half, with which jobs are still of a size worth having. A
    byte in a queue is four or five in memory by the time it is through: so that makes up for it.
    """

    def __init__(self, most: int, excess: Callable[[], int] = lambda: 0) -> None:
        self.changed = threading.Condition()
        self._most = most
        self._excess = excess
        self._used = 0

    @property
    def total(self) -> int:
        """Of use without the lock as well."""
        return max(self._most // 2, self._most - 2 * self._excess())

    @property
    def left(self) -> bool:
        return self._used < self.total

    @property
    def used(self) -> bool:
        """Something waits or runs."""
        return self._used > 0

    def use(self, size: int) -> None:
        self._used += size

    def give_back(self, size: int) -> None:
        self._used -= size
        self.changed.notify_all()
