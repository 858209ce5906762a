"""Processes that wait, with their Spark up, to become a site of this machine that has died.

Starting a JVM and a Spark is nearly all that a site needs to come back.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import IO, Any

from anabranch.config.cluster import SiteConfig

Kind = tuple[str, tuple[tuple[str, str], ...]]
"""What cannot be changed once a Spark is up: its master and its settings."""
Start = Callable[[], "subprocess.Popen[bytes]"]
MOST_SKIPPED = 63


class Spares:
    """`count` of each kind that `configs` have; `start` starts a process that takes its orders, a
    line of JSON each, on standard input."""

    def __init__(self, count: int, configs: Iterable[SiteConfig], start: Start) -> None:
        self._wanted = Counter({_kind(one): count for one in configs})
        self._start = start
        self._ready: list[tuple[Kind, subprocess.Popen[bytes]]] = []
        self._skip = self._skipped = 0

    def fill(self) -> None:
        """Start those that are missing, because they were taken or have died. After deaths that
        nobody asked for, less and less often."""
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
        there = Counter(kind for kind, _ in self._ready)
        return [(kind, self._start()) for kind in (self._wanted - there).elements()]

    def take(self, config: SiteConfig) -> subprocess.Popen[bytes] | None:
        """One that can become this site; None if there is none."""
        for one in self._ready:
            kind, process = one
            if kind == _kind(config) and process.poll() is None:
                self._ready.remove(one)
                self._skip = 0
                return process
        return None

    def stop(self) -> list[subprocess.Popen[bytes]]:
        """Those that still wait, told to end; whoever asks waits for that."""
        told = [process for _, process in self._ready]
        self._ready.clear()
        for process in told:
            process.terminate()
            with suppress(OSError):  # what was said to one that had died
                _input(process).close()
        return told


def tell(process: subprocess.Popen[bytes], order: dict[str, Any]) -> bool:
    """Whether it can still hear."""
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
