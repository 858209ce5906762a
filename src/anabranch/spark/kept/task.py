"""The task that an evaluation takes itself for: a context, and memory of a manager of ours."""

from __future__ import annotations

from py4j.java_gateway import JavaObject

from anabranch.spark.kept.handles import Handles

ATOMIC = "java.util.concurrent.atomic.AtomicReference"
CONTEXT = "org.apache.spark.TaskContext"
_IMPLEMENTATION = "org.apache.spark.TaskContextImpl"
_MEMORY = "org.apache.spark.memory.TaskMemoryManager"
_METRICS = "org.apache.spark.executor.TaskMetrics"


def in_a_task(
    handles: Handles, memory: JavaObject, properties: JavaObject, work: JavaObject
) -> JavaObject:
    """(number, AtomicReference, …) → nothing: `work` of (TaskContext, …). The number is that of the
    thread, in which no other task runs. The reference holds the context, by which the task can be
    interrupted. At the end all is given back that `work` registered there or took of `memory`."""
    context = handles.class_of(CONTEXT)
    end = handles.method(_IMPLEMENTATION, "markTaskCompleted", "scala.Option")
    end = handles.bound(end, 1, handles.module("scala.None$"))
    work = handles.finally_(work, handles.typed(end, handles.void, context))
    work = handles.finally_(work, _memory_freed(handles))
    work = handles.finally_(work, handles.ignoring(_of_the_thread(handles, "unset"), 0, context))
    work = handles.after(_of_the_thread(handles, "setTaskContext", CONTEXT), work)
    work = handles.ignoring(work, 1, handles.class_of(ATOMIC))
    note = handles.method(ATOMIC, "set", "java.lang.Object")
    note = handles.typed(handles.swapped(note), handles.void, context, handles.class_of(ATOMIC))
    return handles.fed(handles.after(note, work), 0, _context(handles, memory, properties))


def _of_the_thread(handles: Handles, method: str, *parameters: str) -> JavaObject:
    companion = "org.apache.spark.TaskContext$"
    found = handles.bound(
        handles.method(companion, method, *parameters), 0, handles.module(companion)
    )
    return handles.typed(found, handles.void, *map(handles.class_of, parameters))


def _memory_freed(handles: Handles) -> JavaObject:
    """(TaskContext) → nothing."""
    manager, context = handles.class_of(_MEMORY), handles.class_of(CONTEXT)
    of_it = handles.typed(handles.method(_IMPLEMENTATION, "taskMemoryManager"), manager, context)
    free = handles.method(_MEMORY, "cleanUpAllAllocatedMemory")
    return handles.then(of_it, handles.typed(free, handles.void, manager))


def _context(handles: Handles, memory: JavaObject, properties: JavaObject) -> JavaObject:
    """(number) → a TaskContext of the only partition of stage 0, with the settings in
    `properties`, where Spark's code looks them up within a task."""
    make = handles.constructor(
        _IMPLEMENTATION,
        "int",
        "int",
        "int",
        "long",
        "int",
        "int",
        _MEMORY,
        "java.util.Properties",
        "org.apache.spark.metrics.MetricsSystem",
        _METRICS,
        "scala.math.BigDecimal",
        "scala.collection.immutable.Map",
    )
    no_resources = handles.module("scala.collection.immutable.Map$").empty()
    make = handles.bound(make, 11, no_resources)
    # As a handle: py4j takes the number itself for one of Python's.
    cpus = handles.method("scala.math.BigDecimal$", "apply", "int")
    cpus = handles.bound(cpus, 0, handles.module("scala.math.BigDecimal$"), 1)
    make = handles.fed(make, 10, cpus)
    metrics = handles.method(f"{_METRICS}$", "empty")
    make = handles.fed(make, 9, handles.bound(metrics, 0, handles.module(f"{_METRICS}$")))
    make = handles.bound(make, 7, properties, None)
    manager = handles.constructor(_MEMORY, "org.apache.spark.memory.MemoryManager", "long")
    make = handles.fed(make, 6, handles.bound(manager, 0, memory))
    make = handles.bound(handles.bound(make, 4, 0, 1), 0, 0, 0, 0)
    long = handles.class_of("long")
    return handles.typed(handles.same(make), handles.class_of(CONTEXT), long)
