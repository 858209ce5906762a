"""Bytes that all inlets of a process hold together, so that memory does not grow with the hops."""

from __future__ import annotations

from anabranch.runtime.base import Runtime


class Budget:
    """Counts what waits in the inlets that share it and what running instances took from them.

    A single busy inlet may use all of it, several share it. It paces and does not allocate: an
    inlet with little waiting goes beyond it, else those that used it up might wait for ever for the
    ones behind them. `changed` wakes those who wait for space.
    """

    def __init__(self, runtime: Runtime, total: int) -> None:
        self.runtime = runtime
        self.changed = runtime.signal()
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
        self.changed.notify()
