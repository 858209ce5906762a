"""Keeps a standby that is shipped little ready to run.

A JVM compiles what it runs, so the first instances of a task take twice as long as later ones. A
standby at a large batch size would pay that when it has taken over. So it runs on made-up input now
and then, and knows from that what an instance costs here.
"""

from __future__ import annotations

from collections.abc import Callable

from anabranch.runtime.base import Runtime
from anabranch.site.tasks.calibration import InSlot
from anabranch.site.tasks.task import Task

AT_ONCE = 32
"""Instances, dry ones included, that are run at half the speed of one processor."""
SOON = 200
"""Up to so many there is one every `SOON_S`, behind them one every `LATER_S`."""
LEAST_S, SOON_S, LATER_S = 0.05, 1.0, 5.0


class Warmth:
    """Of a task that stands by, until it is closed. `in_slot` runs it when nothing else does;
    `consider` has the executor look at the task after a run: something may have come meanwhile."""

    def __init__(
        self, runtime: Runtime, task: Task, in_slot: InSlot, consider: Callable[[], None]
    ) -> None:
        self._task = task
        self._runtime = runtime
        self._in_slot = in_slot
        self._consider = consider
        self._known = task.measures.samples
        self._closed = False
        self._warming = False
        self._coroutine = runtime.supervise(f"warming of {task.spec.name}", self._run)

    def close(self) -> None:
        """A run that is under way ends first: the end of an input that comes meanwhile would else
        be seen by nobody."""
        self._closed = True
        if not self._warming:
            self._coroutine.cancel()

    async def _run(self) -> None:
        pause_s = LEAST_S
        while not self._closed:
            await self._runtime.sleep(pause_s)
            self._warming = True
            try:
                pause_s = await self._runtime.blocking(self._next)
            finally:
                self._warming = False
            self._consider()

    def _next(self) -> float:
        """Run once, unless it has lately run by itself; how long to wait then."""
        samples = self._task.measures.samples
        if samples > self._known:
            self._known = samples
            return SOON_S
        try:
            took_s = self._in_slot(self._task.warm_up) or 0.0
        except Exception:  # nothing depends on it; its Spark may be going down
            return LATER_S
        self._known = samples + 1 if took_s else samples
        if took_s and self._known < AT_ONCE:
            return max(took_s, LEAST_S)
        return SOON_S if self._known < SOON else LATER_S
