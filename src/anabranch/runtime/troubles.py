"""What goes wrong in what a process does by itself: counted, shown in reports, logged, and tried
again after a pause.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
import zlib
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn

from anabranch.errors import AnabranchError, StorageError
from anabranch.hidden import shown
from anabranch.runtime.log import note, print_trace

FIRST_S, MOST_S = 0.1, 5.0
"""Pause before what failed is begun again; it doubles with each failure in a row."""
CALM_S = 60.0
"""After so long without a failure the next one is the first of a new row."""
MOST_NAMES = 200
EXIT_CODE = 70
ENVIRONMENT = (StorageError, OSError, sqlite3.OperationalError)
"""What the machine does to us, and no fault of our own: a full disk, an I/O error, no more files
or threads."""


@dataclass(frozen=True, slots=True)
class TroubleReport:
    """A thing that failed and was begun again: the newest error, how often it failed in all and in
    a row, and how long ago the row began and the last failure was. `goes_on` means that it seems to
    be over.
    """

    name: str
    error: str
    times: int
    row: int
    since_s: float
    last_s: float
    goes_on: bool


@dataclass
class Trouble:
    """`times` counts all failures, `row` those since the last success; `since` and `last` are the
    first and the newest of the row, by the runtime's clock.
    """

    error: str
    times: int = 0
    row: int = 0
    since: float = 0.0
    last: float = 0.0


class Troubles:
    """The troubles of one process, by the name of what failed. Any thread may add and read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, Trouble] = {}

    def happened(self, name: str, error: BaseException, now: float) -> float:
        """Counts a failure and returns how long to pause before the next try. A stack trace is
        printed only for the first of a row of equal failures.
        """
        text = one_line(error)
        with self._lock:
            trouble = self._known.pop(name, None) or Trouble(text, since=now)
            if trouble.row and now - trouble.last > CALM_S:
                trouble.row = 0
            fresh = trouble.row == 0 or trouble.error != text
            if trouble.row == 0:
                trouble.since = now
            trouble.error, trouble.last = text, now
            trouble.times += 1
            trouble.row += 1
            self._known[name] = trouble
            while len(self._known) > MOST_NAMES:
                del self._known[next(iter(self._known))]
            pause = min(MOST_S, FIRST_S * 2.0 ** min(trouble.row - 1, 10))
        if fresh:
            note("trouble", f"{name}: {text}", wrong=True)
            # A terminal that is gone is no reason for what failed to end.
            with suppress(OSError, ValueError):
                print(f"{name} failed:", file=sys.stderr)
                print_trace(error)
        return pause

    def report(self, now: float) -> tuple[TroubleReport, ...]:
        """All troubles, the newest first."""
        with self._lock:
            known = [(name, one) for name, one in self._known.items()]
        return tuple(
            TroubleReport(
                name,
                one.error,
                one.times,
                one.row,
                round(now - one.since, 1),
                round(now - one.last, 1),
                goes_on=now - one.last > 2 * MOST_S,
            )
            for name, one in sorted(known, key=lambda pair: -pair[1].last)
        )


def one_line(error: BaseException) -> str:
    if isinstance(error, AnabranchError):
        return error.line()
    text = (str(error).strip() or repr(error)).splitlines()[0]
    return shown(f"{type(error).__name__}: {text}")


def end_process(name: str, error: BaseException) -> NoReturn:
    """Ends the process, because something that it cannot do without has failed and cannot be begun
    again: otherwise the process would exist and do nothing. Its end is noticed at once, and a
    standby or spare goes on.
    """
    note("ended", f"{name} failed, so this process ends: {one_line(error)}", wrong=True)
    print_trace(error)
    print(f"{name} failed, so this process ends", file=sys.stderr, flush=True)
    os._exit(EXIT_CODE)


@dataclass(frozen=True)
class Backoff:
    """Pauses double from `first_s` to `longest_s`, and each is shortened by up to half, by a
    different part for each client: clients that lost one service together do not all come back to
    it at once. The part is computed from the client and the number of the try, so a simulated run
    repeats.
    """

    first_s: float
    longest_s: float

    def pause_s(self, tries: int, who: str) -> float:
        """The pause after this many failures in a row, at least one."""
        whole = min(self.longest_s, self.first_s * 2.0 ** min(tries - 1, 60))
        return whole * (0.5 + zlib.crc32(f"{who} {tries}".encode()) / 2**33)
