"""Processes of sites and their JVMs, as the machine sees them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress

import psutil


def family(pid: int) -> list[psutil.Process]:
    """A process and all that it has started, such as a site's JVM; empty if it is gone."""
    with suppress(psutil.NoSuchProcess):
        return [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    return []


def kill(processes: Iterable[psutil.Process]) -> None:
    """SIGKILL to each that is still there."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()


class Busy:
    """CPU time of a site from now on."""

    def __init__(self, pid: int) -> None:
        self._since = time.monotonic()
        self._before = {process: _cpu_s(process) for process in family(pid)}

    def share(self) -> float:
        """Of those that ended meanwhile nothing is known any more."""
        used = sum(max(0.0, _cpu_s(one) - before) for one, before in self._before.items())
        return used / (time.monotonic() - self._since)


def cpu_s(pid: int) -> float:
    """CPU seconds that a site's process and its JVM have used so far."""
    return sum(map(_cpu_s, family(pid)))


def _cpu_s(process: psutil.Process) -> float:
    """0 if it is gone."""
    with suppress(psutil.NoSuchProcess):
        times = process.cpu_times()
        return float(times.user + times.system)
    return 0.0
