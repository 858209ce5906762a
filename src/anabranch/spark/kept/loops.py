"""Threads in the JVM that run what kept queries have registered, on what comes by a connection.

A request is the number of the work, 8 bytes, and what that work reads. The answer is what the work
writes, and then `DONE` or `FAILED`. After a failure the thread ends, having put the exception where
`failure` finds it. There are as many threads as there were evaluations at once.

Java lets nobody end a thread that does not look whether it should: a regular expression that tries
2⁴⁰ ways looks nowhere. Such a one is abandoned: its connection is closed, its instance has failed,
and it goes on at the lowest priority that the machine has, until it is through or its process ends.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import count
from pathlib import Path

from py4j.java_gateway import JavaObject, JVMView
from py4j.protocol import Py4JError

from anabranch.spark.jvm import jvm as jvm_process
from anabranch.spark.kept.handles import Channel, Handles, handles_of, named
from anabranch.spark.kept.task import ATOMIC

DONE, FAILED = -11, -12
"""In the place of a length; Spark uses others for its own ends."""
CHANNEL, OUTPUT = "java.nio.channels.ReadableByteChannel", "java.io.DataOutputStream"
_HANDLE = "java.lang.invoke.MethodHandle"
_MAP = "java.util.concurrent.ConcurrentHashMap"
_BUFFER = 1 << 16
_KEY_BYTES = 8
_MOST_IDLE = 8
MOST = 8
"""With more abandoned threads a site's process ends: its standby, or it itself in a new process,
goes on."""
_LOWEST = 19

_numbers = count(1)


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


class KeptLoop:
    """One such thread and its connection, for one caller at a time. `works` has by number handles
    of (number of the thread, AtomicReference for the context, channel, output)."""

    def __init__(self, jvm: JVMView, works: JavaObject) -> None:
        handles = handles_of(jvm)
        self.channel = Channel(jvm)
        self._theirs = self.channel.jvm_side
        self._failure, self._running = named(jvm, ATOMIC)(), named(jvm, ATOMIC)()
        stream = named(jvm, "java.nio.channels.Channels").newOutputStream(self._theirs)
        buffered = named(jvm, "java.io.BufferedOutputStream")(stream, _BUFFER)
        output = named(jvm, OUTPUT)(buffered)
        work = self._work(jvm, handles, works, output)
        loop = handles.repeated(_answered(handles, work, output, self._failure))
        close = handles.method("java.nio.channels.Channel", "close")
        loop = handles.finally_(loop, handles.bound(close, 0, self._theirs))
        # What ends it is kept and not printed.
        runnable = handles.interface("java.lang.Runnable", loop)
        task = named(jvm, "java.util.concurrent.FutureTask")(runnable, None)
        # Fifteen letters at most, which is what the machine knows of a thread.
        self._name = f"kept-{next(_numbers)}"
        self._thread = named(jvm, "java.lang.Thread")(task, self._name)
        self._thread.setDaemon(True)
        self._thread.start()
        self._left = False

    def _work(
        self, jvm: JVMView, handles: Handles, works: JavaObject, output: JavaObject
    ) -> JavaObject:
        """() → nothing: what the next request asks for."""
        types = [handles.class_of(one) for one in ("long", ATOMIC, CHANNEL, OUTPUT)]
        invoke = handles.bound(handles.of_handles(*types), 2, self._running, self._theirs, output)
        invoke = handles.bound_long(invoke, 1, next(_numbers))
        stream = named(jvm, "java.nio.channels.Channels").newInputStream(self._theirs)
        source = named(jvm, "java.io.DataInputStream")(stream)
        key = handles.bound(handles.method("java.io.DataInputStream", "readLong"), 0, source)
        key = handles.then(key, handles.method("java.lang.Math", "toIntExact", "long"))
        key = handles.typed(key, handles.class_of("java.lang.Object"))
        find = handles.bound(handles.method(_MAP, "get", "java.lang.Object"), 0, works)
        found = handles.typed(handles.then(key, find), handles.class_of(_HANDLE))
        return handles.fed(invoke, 0, found)

    def failure(self) -> JavaObject | None:
        """What a `FAILED` answer is about."""
        return self._failure.get()

    def interrupt(self) -> None:
        """From any thread: what runs fails soon."""
        if running := self._running.get():
            running.markInterrupted("stopped")

    def abandon(self) -> None:
        """From any thread. Its connection is closed and it need not notice: let it end when it is
        through. Nothing is asked of the JVM here, which may not answer."""
        self._left = True
        abandoned.add(self._thread, self._name, jvm_process.pid)
        self.channel.shut()

    def close(self) -> None:
        self.channel.close()
        if not self._left:
            with suppress(Py4JError, OSError):
                self._theirs.close()


def _answered(
    handles: Handles, work: JavaObject, output: JavaObject, failure: JavaObject
) -> JavaObject:
    """() → whether `work` succeeded; which the other side has been told."""
    say = handles.bound(handles.method(OUTPUT, "writeInt", "int"), 0, output)
    flush = handles.bound(handles.method(OUTPUT, "flush"), 0, output)
    done, failed = (handles.then(handles.bound(say, 0, code), flush) for code in (DONE, FAILED))
    note = handles.bound(handles.method(ATOMIC, "set", "java.lang.Object"), 0, failure)
    note = handles.typed(note, handles.void, handles.class_of("java.lang.Throwable"))
    return handles.caught(
        handles.giving(handles.then(work, done), True),
        handles.giving(handles.then(note, failed), False),
    )


class KeptLoops:
    """Those of one session. `active` is entered when a thread is made: it hands settings down."""

    def __init__(self, jvm: JVMView, active: Callable[[], AbstractContextManager[None]]) -> None:
        self._jvm, self._active = jvm, active
        self._lock = threading.Lock()
        self._works = named(jvm, _MAP)()
        self._idle: list[KeptLoop] = []
        self._registered = 0

    def register(self, work: JavaObject) -> bytes:
        """How a request for `work` begins, until that is removed."""
        number = next(_numbers)
        self._works.put(number, work)
        with self._lock:
            self._registered += 1
        return number.to_bytes(_KEY_BYTES, "big")

    def remove(self, key: bytes) -> None:
        """With the last work idle threads go, too."""
        with suppress(Py4JError, OSError):
            self._works.remove(int.from_bytes(key, "big"))
        with self._lock:
            self._registered -= 1
            needless = [] if self._registered else self._idle[:]
            del self._idle[: len(needless)]
        for loop in needless:
            loop.close()

    def take(self) -> KeptLoop:
        """One for whoever calls alone, to be given back or closed."""
        with self._lock:
            if self._idle:
                return self._idle.pop()
        with self._active():
            return KeptLoop(self._jvm, self._works)

    def give_back(self, loop: KeptLoop) -> None:
        with self._lock:
            if self._registered and len(self._idle) < _MOST_IDLE:
                self._idle.append(loop)
                return
        loop.close()

    @contextmanager
    def lent(self) -> Iterator[KeptLoop]:
        """A loop, which is closed if anything goes wrong meanwhile: what is on its way belongs to
        nobody."""
        loop = self.take()
        try:
            yield loop
        except BaseException:
            loop.close()
            raise
        self.give_back(loop)
