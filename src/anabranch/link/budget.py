"""Bytes that all inlets of a process hold together, so that memory does not grow with the hops."""

from __future__ import annotations

import threading


class Budget:
    """Counts what waits in the inlets that share it and what running instances took from them.

    A single busy inlet may use all of it, several share it. It paces and does not allocate: an
    inlet with little waiting goes beyond it, else those that used it up might wait for ever for the
    ones behind them. `changed` is the one lock of all these inlets; hold it to call anything here.
    """

    def __init__(self, total: int) -> None:
        self.changed = threading.Condition()
        self.total = total
        self._used = 0

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
