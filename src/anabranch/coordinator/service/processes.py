"""Processes on this machine: those of sites, to which failures to try out go; those that wait to
become a site that has died; and what they print.

Starting a JVM and a Spark is nearly all that a site needs to come back.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import pairwise
from typing import IO, Any

import psutil

from anabranch.config.address import read_address
from anabranch.config.cluster import SiteConfig
from anabranch.coordinator.base.reports import SystemStatus
from anabranch.coordinator.base.sites import unknown_site
from anabranch.errors import SiteError


def signal_process(name: str, number: signal.Signals, status: SystemStatus) -> int:
    """Sends a signal to the process of a site; returns its number. Raises SiteError."""
    process = process_of(name, status)
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        raise _gone(name, process.pid) from None
    return int(process.pid)


def process_of(name: str, status: SystemStatus) -> psutil.Process:
    """The process of a site that has one of its own on this machine. Raises SiteError."""
    sites = {one.site: one for one in status.sites}
    if name not in sites:
        raise unknown_site(name, sites)
    address, pid = sites[name].address, sites[name].pid
    if address and not read_address(address).loopback:
        raise SiteError(
            f"site {name} is on another machine, at {address}", remedy="Signal its process there."
        )
    if pid == status.pid:
        raise SiteError(
            f"site {name} shares the coordinator's process",
            remedy=f'Give it isolation = "process" in cluster.toml, under [site.{name}].',
        )
    process = _process(pid)
    if process is None or not _is_site(process, name):
        raise _gone(name, pid)
    return process


def _gone(name: str, pid: int) -> SiteError:
    return SiteError(
        f"the process of site {name} ({pid}) is gone already",
        remedy="`up` starts it again; one started by hand is yours to start.",
    )


def _process(pid: int) -> psutil.Process | None:
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process
    except (psutil.NoSuchProcess, ValueError):
        return None


def _is_site(process: psutil.Process, name: str) -> bool:
    """Whether the process was started as that site, or to become any: the numbers of processes are
    used again.
    """
    try:
        words = process.cmdline()
    except psutil.Error:
        return False
    pairs = list(pairwise(words))
    if ("anabranch", "spare") in pairs:
        return True
    return any("anabranch" in word for word in words) and ("site", name) in pairs


Kind = tuple[str, tuple[tuple[str, str], ...]]
"""What cannot be changed once a Spark is up: its master and its settings."""
Start = Callable[[], "subprocess.Popen[bytes]"]
MOST_SKIPPED = 63


class Spares:
    """`count` processes of each kind that `configs` have; `start` starts a process that takes its
    orders, a line of JSON each, on standard input.
    """

    def __init__(self, count: int, configs: Iterable[SiteConfig], start: Start) -> None:
        self._wanted = Counter({_kind(one): count for one in configs})
        self._start = start
        self._ready: list[tuple[Kind, subprocess.Popen[bytes]]] = []
        self._skip = self._skipped = 0

    def fill(self) -> None:
        """Starts those that are missing, because they were taken or have died. After deaths that
        nobody asked for, it does so less and less often.
        """
        alive = [one for one in self._ready if one[1].poll() is None]
        if len(alive) < len(self._ready):
            self._skip, self._skipped = min(2 * self._skip + 1, MOST_SKIPPED), 0
        self._ready = alive
        if self._skipped < self._skip:
            self._skipped += 1
            return
        for kind, process in self._missing():
            master, conf = kind
            tell(process, {"master": master, "conf": dict(conf)})
            self._ready.append((kind, process))

    def _missing(self) -> list[tuple[Kind, subprocess.Popen[bytes]]]:
        ready = Counter(kind for kind, _ in self._ready)
        return [(kind, self._start()) for kind in (self._wanted - ready).elements()]

    def take(self, config: SiteConfig) -> subprocess.Popen[bytes] | None:
        """A spare that can become this site; None if there is none."""
        for spare in self._ready:
            kind, process = spare
            if kind == _kind(config) and process.poll() is None:
                self._ready.remove(spare)
                self._skip = 0
                return process
        return None

    def stop(self) -> list[subprocess.Popen[bytes]]:
        """Tells those that still wait to end, and returns them; the caller waits for their end."""
        processes = [process for _, process in self._ready]
        self._ready.clear()
        for process in processes:
            process.terminate()
            with suppress(OSError):  # what was said to one that had died
                _input(process).close()
        return processes


def tell(process: subprocess.Popen[bytes], order: dict[str, Any]) -> bool:
    """Sends an order. Returns whether the process can still read it."""
    try:
        _input(process).write(json.dumps(order).encode() + b"\n")
        _input(process).flush()
    except OSError:
        return False
    return True


def _input(process: subprocess.Popen[bytes]) -> IO[bytes]:
    assert process.stdin is not None, "orders come on standard input"
    return process.stdin


def _kind(config: SiteConfig) -> Kind:
    return config.master, tuple(sorted(config.conf.items()))


REST_S = 5.0
"""How long what a site that has ended left in its pipe is waited for."""


class SiteOutput:
    """Whole lines, in the order of each site. They go to the current `sys.stdout`: a live table
    puts itself there, and so knows of them.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None, "a site whose output is passed on writes to a pipe"
        self._thread = threading.Thread(
            target=self._pass_on, args=(process.stdout,), name="site-output", daemon=True
        )
        self._thread.start()

    def _pass_on(self, lines: IO[bytes]) -> None:
        with lines:
            for line in lines:
                try:
                    sys.stdout.write(line.decode(errors="replace").rstrip("\n") + "\n")
                    sys.stdout.flush()
                except OSError:  # nobody reads us any more: the sites' sinks hear of it, too
                    return

    def close(self) -> None:
        """Passes on the rest of the output once the site has ended."""
        self._thread.join(REST_S)
