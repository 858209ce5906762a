"""Keeps a standby that is shipped little ready to run.

A JVM compiles what it runs, so the first instances of a task take twice as long as later ones. A
standby at a large batch size would pay that when it has taken over. So it runs on made-up input now
and then, and knows from that what an instance costs here.
"""

from __future__ import annotations

import threading

from anabranch.site.task import Task

AT_ONCE = 32
"""Instances, dry ones included, that are run at half the speed of one processor."""
SOON = 200
"""Up to so many there is one every `SOON_S`, behind them one every `LATER_S`."""
LEAST_S, SOON_S, LATER_S = 0.05, 1.0, 5.0


class Warmth:
    """Of a task that stands by, until it is closed."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._known = task.measures.samples
        self._over = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"warm-{task.spec.name}", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._over.set()

    def _run(self) -> None:
        pause_s = LEAST_S
        while not self._over.wait(pause_s):
            pause_s = self._next()

    def _next(self) -> float:
        """Run once, unless it has lately run by itself; how long to wait then."""
        samples = self._task.measures.samples
        if samples > self._known:
            self._known = samples
            return SOON_S
        try:
            took_s = self._task.warm_up()
        except Exception:  # nothing depends on it; its Spark may be going down
            return LATER_S
        self._known = samples + 1 if took_s else samples
        if took_s and self._known < AT_ONCE:
            return max(took_s, LEAST_S)
        return SOON_S if self._known < SOON else LATER_S
