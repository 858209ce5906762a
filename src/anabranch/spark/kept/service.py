"""The JVM's side of a kept plan: a thread that answers requests on one connection, and how threads
end that nobody waits for any more.

Java cannot end a thread that does not check whether it should end: a regular expression that tries
2⁴⁰ ways looks nowhere. Its connection is closed, its instance has failed, and it goes on at the
lowest priority that the machine has, until it is through or its process ends.

A request is one Arrow record batch and the end-of-stream mark; the answer is the record batches of
the results, each behind its length, and then `DONE` or `FAILED`. After a failure the thread ends,
having given Arrow's memory back and put the exception where `failure` finds it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

import pyarrow as pa
from py4j.java_gateway import JavaObject
from pyspark.sql import SparkSession

from anabranch.spark.jvm import jvm as jvm_process
from anabranch.spark.kept.handles import Handles, handles_of, named

MOST = 8
"""With more of them a site's process ends: its standby, or it itself in a new process, goes on."""
_LOWEST = 19
_numbers = count(1)


def thread_name() -> str:
    """A name of at most fifteen letters, because the machine keeps no more of a thread's name."""
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
        """How many there still are. It asks the JVM, so it may take its time."""
        with self._lock:
            threads = list(self._threads)
        alive = [one for one in threads if one.isAlive()]
        with self._lock:
            self._threads = [one for one in self._threads if one in alive or one not in threads]
            return len(self._threads)


def _slow_down(pid: int, name: str) -> None:
    """Slows the thread down. Only on Linux a thread has a priority of its own; elsewhere it goes on
    as before.
    """
    for thread in Path(f"/proc/{pid}/task").glob("*"):
        with suppress(OSError, ValueError):
            if (thread / "comm").read_text().strip() == name:
                os.setpriority(os.PRIO_PROCESS, int(thread.name), _LOWEST)


abandoned = Abandoned()
"""Of this process's JVM."""


DONE, FAILED = -11, -12
"""In the place of a length; Spark uses others for its own ends."""
_ITERATOR = "scala.collection.Iterator"
_STRUCT = "org.apache.spark.sql.types.StructType"
_CONTEXT = "org.apache.spark.TaskContext"
_ARROW = "org.apache.spark.sql.execution.arrow.ArrowConverters$"
_SEQUENCE = "scala.collection.immutable.Seq"
_PYTHON = "org.apache.spark.api.python.PythonRDD$"
_ATOMIC = "java.util.concurrent.atomic.AtomicReference"
_BUFFER = 1 << 16
ROWS = 65_536
"""Of one batch of results."""


class Service:
    """Serves `channel`, a connected `SocketChannel`, by running `factories` on what comes."""

    def __init__(
        self,
        spark: SparkSession,
        factories: Sequence[JavaObject],
        columns_in: JavaObject,
        columns_out: JavaObject,
        channel: JavaObject,
    ) -> None:
        jvm = spark._jvm
        assert jvm is not None
        self._channel = channel
        self._failure, self._running = named(jvm, _ATOMIC)(), named(jvm, _ATOMIC)()
        stream = named(jvm, "java.nio.channels.Channels").newOutputStream(channel)
        buffered = named(jvm, "java.io.BufferedOutputStream")(stream, _BUFFER)
        output = named(jvm, "java.io.DataOutputStream")(buffered)
        handles = handles_of(jvm)
        rows = _rows(handles, channel, columns_in)
        for factory in factories:
            rows = handles.then(rows, _evaluated(handles, factory))
        written = _written(handles, rows, columns_out, output)
        work = _in_a_context(handles, written, self._running)
        loop = handles.repeated(_answered(handles, work, output, self._failure))
        loop = handles.finally_(loop, _closed(handles, channel))
        # What ends it is kept and not printed; and the session's settings are handed down to it.
        task = named(jvm, "java.util.concurrent.FutureTask")(handles.runnable(loop), None)
        named(jvm, "SparkSession").setActiveSession(spark._jsparkSession)
        self._name = thread_name()
        self._thread = named(jvm, "java.lang.Thread")(task, self._name)
        self._thread.setDaemon(True)
        self._thread.start()
        self._left = False

    def failure(self) -> JavaObject | None:
        """The exception that a `FAILED` answer is about."""
        return self._failure.get()

    def interrupt(self) -> None:
        """Called from any thread: the running evaluation fails soon."""
        if running := self._running.get():
            running.markInterrupted("stopped")

    def abandon(self) -> None:
        """Leaves it alone: its connection is closed, and it ends when it is through, even if it
        does not notice before. Nothing is asked of the JVM here, which may not answer.
        """
        self._left = True
        abandoned.add(self._thread, self._name, jvm_process.pid)

    def close(self) -> None:
        if not self._left:
            self._channel.close()


def _rows(handles: Handles, channel: JavaObject, schema: JavaObject) -> JavaObject:
    """(TaskContext) → Iterator of the rows of a request, until that is interrupted."""
    arrow = handles.module(_ARROW)
    batches = handles.method(
        _ARROW, "getBatchesFromStream", "java.nio.channels.ReadableByteChannel"
    )
    decode = handles.method(
        _ARROW,
        "fromBatchIterator",
        _ITERATOR,
        _STRUCT,
        "java.lang.String",
        "boolean",
        "boolean",
        _CONTEXT,
    )
    decode = handles.bound(handles.bound(decode, 2, schema, "UTC", True, False), 0, arrow)
    rows = handles.fed(decode, 0, handles.bound(batches, 0, arrow, channel))
    watch = handles.constructor("org.apache.spark.InterruptibleIterator", _CONTEXT, _ITERATOR)
    watch = handles.typed(watch, *map(handles.class_of, (_ITERATOR, _CONTEXT, _ITERATOR)))
    return handles.same(handles.fed(watch, 1, rows))


def _evaluated(handles: Handles, factory: JavaObject) -> JavaObject:
    """(Iterator) → Iterator, by an evaluator made for this once, as for a partition of a job."""
    make = handles.method("org.apache.spark.PartitionEvaluatorFactory", "createEvaluator")
    evaluate = handles.method("org.apache.spark.PartitionEvaluator", "eval", "int", _SEQUENCE)
    evaluate = handles.fed(handles.bound(evaluate, 1, 0), 0, handles.bound(make, 0, factory))
    prepend = handles.method("scala.collection.immutable.List", "$colon$colon", "java.lang.Object")
    alone = handles.bound(prepend, 0, handles.module("scala.collection.immutable.Nil$"))
    sequence, iterator = handles.class_of(_SEQUENCE), handles.class_of(_ITERATOR)
    return handles.then(handles.typed(alone, sequence, iterator), evaluate)


def _written(
    handles: Handles, rows: JavaObject, schema: JavaObject, output: JavaObject
) -> JavaObject:
    """(TaskContext) → nothing: the rows written to `output`."""
    encode = handles.method(
        _ARROW,
        "toBatchIterator",
        _ITERATOR,
        _STRUCT,
        "long",
        "java.lang.String",
        "boolean",
        "boolean",
        _CONTEXT,
    )
    encode = handles.bound(encode, 4, "UTC", True, False)
    encode = handles.bound(handles.bound_long(encode, 3, ROWS), 2, schema)
    write = handles.method(_PYTHON, "writeIteratorToStream", _ITERATOR, "java.io.DataOutputStream")
    write = handles.bound(handles.bound(write, 2, output), 0, handles.module(_PYTHON))
    encode = handles.bound(encode, 0, handles.module(_ARROW))
    encode = handles.typed(encode, *map(handles.class_of, (_ITERATOR, _ITERATOR, _CONTEXT)))
    return handles.same(handles.fed(handles.then(encode, write), 0, rows))


def _in_a_context(handles: Handles, work: JavaObject, running: JavaObject) -> JavaObject:
    """() → nothing: runs `work` in a TaskContext of its own, found in `running`, by which it can be
    interrupted, and at whose end Arrow's memory is given back. The thread does not know of it.
    """
    context = handles.class_of(_CONTEXT)
    end = handles.method("org.apache.spark.TaskContextImpl", "markTaskCompleted", "scala.Option")
    end = handles.bound(end, 1, handles.module("scala.None$"))
    work = handles.finally_(work, handles.typed(end, handles.void, context))
    note = handles.bound(handles.method(_ATOMIC, "set", "java.lang.Object"), 0, running)
    work = handles.after(handles.typed(note, handles.void, context), work)
    empty = handles.method("org.apache.spark.TaskContext$", "empty")
    empty = handles.bound(empty, 0, handles.module("org.apache.spark.TaskContext$"))
    return handles.fed(work, 0, handles.typed(empty, context))


def _answered(
    handles: Handles, work: JavaObject, output: JavaObject, failure: JavaObject
) -> JavaObject:
    """() → whether `work` succeeded; the other side has been told."""
    say = handles.bound(handles.method("java.io.DataOutputStream", "writeInt", "int"), 0, output)
    flush = handles.bound(handles.method("java.io.DataOutputStream", "flush"), 0, output)
    done, failed = (handles.then(handles.bound(say, 0, code), flush) for code in (DONE, FAILED))
    note = handles.bound(handles.method(_ATOMIC, "set", "java.lang.Object"), 0, failure)
    note = handles.typed(note, handles.void, handles.class_of("java.lang.Throwable"))
    return handles.caught(
        handles.giving(handles.then(work, done), True),
        handles.giving(handles.then(note, failed), False),
    )


def _closed(handles: Handles, channel: JavaObject) -> JavaObject:
    """() → nothing."""
    return handles.bound(handles.method("java.nio.channels.Channel", "close"), 0, channel)


def empty_batch(spark: SparkSession, schema: JavaObject) -> pa.Table:
    """No rows of a schema of Spark's, in the Arrow types that Spark sends them in."""
    jvm = spark._jvm
    assert jvm is not None
    coded = handles_of(jvm).module(_ARROW).createEmptyArrowBatch(schema, "UTC", True, False)
    return pa.ipc.open_stream(coded).read_all()
