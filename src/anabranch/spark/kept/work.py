"""What a loop does for one kept query: read its inputs, compute its rows, write them."""

from __future__ import annotations

from collections.abc import Sequence

from py4j.java_gateway import JavaObject

from anabranch.spark.kept.handles import Handles
from anabranch.spark.kept.loops import CHANNEL, OUTPUT
from anabranch.spark.kept.physical import Physical, Scalar
from anabranch.spark.kept.task import ATOMIC, CONTEXT

ROWS = 65_536
"""Of one batch of results."""
_ARROW = "org.apache.spark.sql.execution.arrow.ArrowConverters$"
_ERRORS = "org.apache.spark.sql.errors.QueryExecutionErrors$"
_ITERATOR = "scala.collection.Iterator"
_OBJECT = "java.lang.Object"
_PYTHON = "org.apache.spark.api.python.PythonRDD$"
_ROW = "org.apache.spark.sql.catalyst.InternalRow"
_STRUCT = "org.apache.spark.sql.types.StructType"


def work(
    handles: Handles, cells: Sequence[JavaObject], physical: Physical, output: JavaObject
) -> JavaObject:
    """(TaskContext, channel, output stream) → nothing. `cells` are filled by what the channel has,
    in their order, and empty again at the end. `output` is the schema of the rows."""
    context = handles.class_of(CONTEXT)
    done = _written(handles, _rows(handles, physical.rdd), output)
    for scalar in reversed(physical.scalars):
        done = handles.after(_scalar(handles, scalar), done)
    done = handles.ignoring(done, 1, handles.class_of(CHANNEL))
    for cell in reversed(cells):
        read = handles.ignoring(_read(handles, cell), 0, context)
        done = handles.after(read, done)
    for cell in [*cells, *(scalar.cell for scalar in physical.scalars)]:
        empty = handles.bound(_set(handles, cell), 0, None)
        done = handles.finally_(done, empty)
    return done


def _set(handles: Handles, cell: JavaObject) -> JavaObject:
    """(Object) → nothing."""
    return handles.bound(handles.method(ATOMIC, "set", _OBJECT), 0, cell)


def _read(handles: Handles, cell: JavaObject) -> JavaObject:
    """(channel) → nothing: the cell has the batches of one Arrow stream."""
    batches = handles.method(_ARROW, "getBatchesFromStream", CHANNEL)
    batches = handles.bound(batches, 0, handles.module(_ARROW))
    whole = handles.method("scala.collection.IterableOnceOps", "toList")
    whole = handles.typed(whole, handles.class_of(_OBJECT), handles.class_of(_ITERATOR))
    return handles.then(handles.then(batches, whole), _set(handles, cell))


def _rows(handles: Handles, rdd: JavaObject) -> JavaObject:
    """(TaskContext) → Iterator of the rows of its only partition."""
    rows = handles.method(
        "org.apache.spark.rdd.RDD", "iterator", "org.apache.spark.Partition", CONTEXT
    )
    return handles.until_interrupted(handles.bound(rows, 0, rdd, rdd.partitions()[0]))


def _written(handles: Handles, rows: JavaObject, schema: JavaObject) -> JavaObject:
    """(TaskContext, output stream) → nothing: the rows have been written."""
    encode = handles.method(
        _ARROW,
        "toBatchIterator",
        _ITERATOR,
        _STRUCT,
        "long",
        "java.lang.String",
        "boolean",
        "boolean",
        CONTEXT,
    )
    encode = handles.bound(encode, 4, "UTC", True, False)
    encode = handles.bound(handles.bound_long(encode, 3, ROWS), 2, schema)
    encode = handles.bound(encode, 0, handles.module(_ARROW))
    encode = handles.typed(encode, *map(handles.class_of, (_ITERATOR, _ITERATOR, CONTEXT)))
    coded = handles.same(handles.fed(encode, 0, rows))
    write = handles.method(_PYTHON, "writeIteratorToStream", _ITERATOR, OUTPUT)
    return handles.fed(handles.bound(write, 0, handles.module(_PYTHON)), 0, coded)


def _scalar(handles: Handles, scalar: Scalar) -> JavaObject:
    """(TaskContext) → nothing: the cell has the value of a scalar subquery, which is NULL if that
    has no row."""
    iterator, object_class = handles.class_of(_ITERATOR), handles.class_of(_OBJECT)
    more = handles.method(_ITERATOR, "hasNext")
    value = handles.chosen(
        more,
        _only_value(handles, more, scalar.type),
        handles.ignoring(handles.constant(None), 0, iterator),
    )
    value = handles.typed(value, object_class, iterator)
    return handles.then(handles.then(_rows(handles, scalar.rdd), value), _set(handles, scalar.cell))


def _only_value(handles: Handles, more: JavaObject, type_: JavaObject) -> JavaObject:
    """(Iterator) → the value of its first row, which has to be the last."""
    iterator, object_class = handles.class_of(_ITERATOR), handles.class_of(_OBJECT)
    row = handles.class_of(_ROW)
    first = handles.typed(handles.method(_ITERATOR, "next"), row, iterator)
    first = handles.then(first, handles.method(_ROW, "copy"))
    get = handles.method(_ROW, "get", "int", "org.apache.spark.sql.types.DataType")
    first = handles.then(first, handles.typed(handles.bound(get, 1, 0, type_), object_class, row))
    error = handles.method(
        _ERRORS, "multipleRowScalarSubqueryError", "org.apache.spark.QueryContext"
    )
    error = handles.bound(error, 0, handles.module(_ERRORS), None)
    error = handles.typed(error, handles.class_of("java.lang.Throwable"))
    refuse = handles.ignoring(
        handles.then(error, handles.thrown(object_class)), 0, object_class, iterator
    )
    same = handles.typed(handles.identity(), object_class, object_class)
    # The value has been taken by then: (value, Iterator) → value.
    judged = handles.chosen(
        handles.ignoring(more, 0, object_class), refuse, handles.ignoring(same, 1, iterator)
    )
    return handles.same(handles.fed(judged, 0, first))
