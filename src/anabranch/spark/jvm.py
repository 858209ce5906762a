"""Spark's JVM, of which a process has one: whether it has ended, and what follows from that.

A system that runs out of memory kills the JVM, its largest process. A site in a process of its own
then ends as well: standbys, consumers and the coordinator know how to deal with a site that is
gone, but not with one that is there and can do nothing.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import SparkContext

_BROKEN = (OSError, EOFError, Py4JError, pa.ArrowException)
_MOMENT_S = 1.0
"""Connections to it break, and these are raised, a little before it has ended."""
_SIGNAL_S = 0.05
"""When a whole process group is told to stop, we are being told too."""

NO_JVM = "If it was for want of memory, docs/operations.md tells what takes how much. Start again."


class Jvm:
    def __init__(self, process: Callable[[], subprocess.Popen[bytes] | None]) -> None:
        self._process = process
        self._watched = False
        self._closing = threading.Event()

    @property
    def pid(self) -> int | None:
        """The process id; None if it is not ours."""
        process = self._process()
        return process.pid if process else None

    @property
    def ends_process(self) -> bool:
        """Whether this process ends with the JVM: it is a single site's alone."""
        return self._watched and not self._closing.is_set()

    @property
    def ended(self) -> bool:
        """Whether the JVM is ours and has ended."""
        process = self._process()
        return process is not None and process.poll() is not None

    def end(self, error: BaseException) -> str:
        """How the JVM ended, if it has and `error` may come of that; empty otherwise. A process
        that ends with its JVM is gone by then.
        """
        process = self._process()
        if process is None:
            return ""
        try:
            code = process.wait(_MOMENT_S if isinstance(error, _BROKEN) else 0)
        except subprocess.TimeoutExpired:
            return ""
        if self._watched:
            self._closing.wait()
        return _how(code)

    def end_with_it(self, last_words: Callable[[str], None]) -> None:
        """From now on the process ends with the JVM, after `last_words`, unless it is closing
        anyway.
        """
        self._watched = True
        threading.Thread(target=self._watch, args=(last_words,), name="jvm", daemon=True).start()

    def closing(self) -> None:
        """Notes that the process is about to stop, and the JVM may end."""
        self._closing.set()

    def _watch(self, last_words: Callable[[str], None]) -> None:
        process = self._process()
        if process is None:  # not ours
            return
        code = process.wait()
        if self._closing.wait(_SIGNAL_S):
            return
        try:
            last_words(f"Spark's JVM has ended ({_how(code)}), and the site with it")
        finally:
            os._exit(1)


def _how(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _own() -> subprocess.Popen[bytes] | None:
    return getattr(SparkContext._gateway, "proc", None)


jvm = Jvm(_own)
"""Of this process."""
