"""Threads of the JVM that are evaluating something which nobody waits for any more.

Java lets nobody end a thread that does not look whether it should: a regular expression that tries
2⁴⁰ ways looks nowhere. Its connection is closed, its instance has failed, and it goes on at the
lowest priority that the machine has, until it is through or its process ends.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from itertools import count
from pathlib import Path

from py4j.java_gateway import JavaObject

MOST = 8
"""With more of them a site's process ends: its standby, or it itself in a new process, goes on."""
_LOWEST = 19
_numbers = count(1)


def thread_name() -> str:
    """Of fifteen letters at most, which is what the machine knows of a thread."""
    return f"kept-{next(_numbers)}"


class Abandoned:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads: list[JavaObject] = []

    def add(self, thread: JavaObject, name: str, jvm_pid: int | None) -> None:
        with self._lock:
            self._threads.append(thread)
        if jvm_pid is not None:
            _slow_down(jvm_pid, name)

    def look(self) -> int:
        """How many there are still. Asks the JVM, so it may take its time."""
        with self._lock:
            threads = list(self._threads)
        alive = [one for one in threads if one.isAlive()]
        with self._lock:
            self._threads = [one for one in self._threads if one in alive or one not in threads]
            return len(self._threads)


def _slow_down(pid: int, name: str) -> None:
    """Only on Linux, where a thread has a priority of its own. Elsewhere it goes on as it was."""
    for thread in Path(f"/proc/{pid}/task").glob("*"):
        with suppress(OSError, ValueError):
            if (thread / "comm").read_text().strip() == name:
                os.setpriority(os.PRIO_PROCESS, int(thread.name), _LOWEST)


abandoned = Abandoned()
"""Of this process's JVM."""
