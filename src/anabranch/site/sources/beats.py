"""What is to be done now and then for each of many streams, from one thread of the process."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable
from itertools import count

from anabranch.runtime.loop import process_loop

Beat = Callable[[], bool]


class Beats:
    """Threads are not to grow with streams, and a beat is short: who could be waited for is asked
    without waiting. The thread ends when nobody is left to be called."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due: list[tuple[float, int, float, Beat]] = []
        self._numbers = count()
        self._thread: threading.Thread | None = None

    def every(self, seconds: float, beat: Beat) -> None:
        """Call `beat` every so many seconds, for as long as it gives true."""
        with self._changed:
            self._add(seconds, beat)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="beats", daemon=True)
                self._thread.start()
            self._changed.notify()

    def _add(self, seconds: float, beat: Beat) -> None:
        due = time.monotonic() + seconds
        heapq.heappush(self._due, (due, next(self._numbers), seconds, beat))

    def _run(self) -> None:
        while (found := self._next()) is not None:
            seconds, beat = found
            try:
                goes_on = beat()
            except Exception as error:  # of one stream: it is tried again, and the others go on
                process_loop().troubles.happened(
                    "watermarks that follow the clock", error, time.monotonic()
                )
                goes_on = True
            if goes_on:
                with self._changed:
                    self._add(seconds, beat)

    def _next(self) -> tuple[float, Beat] | None:
        """When it is due; None if there is none."""
        with self._changed:
            while self._due:
                wait_s = self._due[0][0] - time.monotonic()
                if wait_s <= 0:
                    _, _, seconds, beat = heapq.heappop(self._due)
                    return seconds, beat
                self._changed.wait(wait_s)
            self._thread = None
            return None


beats = Beats()
"""Of this process."""
