"""Processes of sites and their JVMs, as the machine sees them."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress

import psutil

_PINS = hasattr(os, "sched_setaffinity")


def family(pid: int) -> list[psutil.Process]:
    """A site's process and its JVM; empty if it is gone."""
    with suppress(psutil.NoSuchProcess):
        return [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    return []


def cores() -> list[int]:
    """Those that we may use."""
    if not _PINS:
        return list(range(os.cpu_count() or 1))
    return sorted(os.sched_getaffinity(0))


def pin(pid: int, to: Sequence[int]) -> None:
    """Have all threads of a site run on these cores only, and those that they begin; where the
    operating system has no such thing they run anywhere."""
    for process in family(pid) if _PINS else ():
        with suppress(psutil.NoSuchProcess):
            for thread in process.threads():
                with suppress(ProcessLookupError):
                    os.sched_setaffinity(thread.id, to)


class Busy:
    """CPU time of a site from now on."""

    def __init__(self, pid: int) -> None:
        self._since = time.monotonic()
        self._before = {process: _cpu_s(process) for process in family(pid)}

    def share(self) -> float:
        """Of those that ended meanwhile nothing is known any more."""
        used = sum(max(0.0, _cpu_s(one) - before) for one, before in self._before.items())
        return used / (time.monotonic() - self._since)


def _cpu_s(process: psutil.Process) -> float:
    """0 if it is gone."""
    with suppress(psutil.NoSuchProcess):
        times = process.cpu_times()
        return float(times.user + times.system)
    return 0.0
