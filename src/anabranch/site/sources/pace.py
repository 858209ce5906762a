"""At which pace sources are read: how far one may run ahead, tuples at the pace of their event
times, what is done now and then, and the steps for which a reading waits.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from anabranch.link.inlet import Budget
from anabranch.link.outlet import LiveOutlet
from anabranch.link.wire import EVENT_TIME
from anabranch.runtime.loop import process_loop

POLL_S = 0.01
REST_S = 2.0
"""Nothing waits or runs in this process and nothing was released for so long: all is at rest."""
PATIENCE_S = 30.0
"""The same, whatever runs in this process: it may have to do with other streams."""


class Pace:
    """Lets about as many bytes of a source be on their way at a time as the `budget` has in all, to
    the last hop and back.

    Back-pressure alone lets every queue on the way fill up; and since each hop keeps a tuple until
    nobody after it needs it, all tuples on their way are in memory once per hop.

    The memory that the process takes beyond its normal size (`excess`) comes off that, down to a
    half, with which jobs still have a useful size.

    Tuples that an outlet keeps may also be in windows, and then be released only when more tuples
    follow. That shows when everything has come to rest: from then on as much again may follow. So
    this delays a source and never stops it.
    """

    def __init__(
        self, outlet: LiveOutlet[Any], budget: Budget, excess: Callable[[], int] = lambda: 0
    ) -> None:
        self._outlet = outlet
        self._budget = budget
        self._excess = excess
        self._needed = 0

    def wait(self, stopped: threading.Event) -> None:
        """Blocks until more may follow, or `stopped` is set."""
        kept, moved = self._kept(), time.monotonic()
        busy = moved
        while kept >= self._ahead() + 2 * self._needed and not stopped.wait(POLL_S):
            before, kept, now = kept, self._kept(), time.monotonic()
            moved = now if kept < before else moved
            busy = now if kept < before or self._budget.used else busy
            if now > min(busy + REST_S, moved + PATIENCE_S):
                self._needed = kept

    def _ahead(self) -> int:
        total = self._budget.total
        return max(total // 2, total - self._excess())

    def _kept(self) -> int:
        kept = self._outlet.kept()[1]
        self._needed = min(self._needed, kept)
        return kept


PACE_S = 0.01
"""Tuples that fall due within this time are sent together."""


def at_speed(
    tables: Iterator[pa.Table], *, speed: float, stopped: threading.Event
) -> Iterator[pa.Table]:
    """The tuples of `tables` at `speed` × event time, in pieces."""
    start, origin = time.monotonic(), None
    for table in tables:
        if not len(table):
            continue
        times = np.maximum.accumulate(table.column(EVENT_TIME).to_numpy())
        origin = int(times[0]) if origin is None else origin
        due = start + (times.astype(float) - origin) / (speed * 1e6)
        done = 0
        while done < len(table) and not stopped.is_set():
            ready = int(np.searchsorted(due, time.monotonic() + PACE_S, side="right"))
            if ready > done:
                yield table.slice(done, ready - done)
                done = ready
            if done < len(table):
                wait_s = max(PACE_S, float(due[done]) - time.monotonic())
                stopped.wait(min(wait_s, threading.TIMEOUT_MAX))


Beat = Callable[[], bool]


class Beats:
    """The number of threads must not grow with streams, and a beat is short: whatever could make it
    wait is asked without waiting. The thread ends when nothing is left to be called.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due: list[tuple[float, int, float, Beat]] = []
        self._numbers = count()
        self._thread: threading.Thread | None = None

    def every(self, seconds: float, beat: Beat) -> None:
        """Calls `beat` every so many seconds, for as long as it returns true."""
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
        while (due := self._next()) is not None:
            seconds, beat = due
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
        """The next beat and when it is due; None if there is none."""
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


@dataclass(frozen=True)
class Pause:
    """Asks to go on after this time."""

    seconds: float


@dataclass(frozen=True)
class Room:
    """Asks to go on when the outlet has room."""


@dataclass(frozen=True)
class Next:
    """Asks for the next of these; None at their end. An error in that is raised where it was asked
    for.
    """

    tables: Iterator[Any]


Need: TypeAlias = Pause | Room | Next
Steps: TypeAlias = Generator[Need, Any, None]
"""Closed where it is when nobody wants it to go on."""
