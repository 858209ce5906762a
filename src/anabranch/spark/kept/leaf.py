"""An input of a kept query: an RDD of one partition that gives whatever its cell holds."""

from __future__ import annotations

import pyarrow as pa
from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from anabranch.spark.kept.handles import Handles, named
from anabranch.spark.kept.kept_session import KeptSession

_ARROW = "org.apache.spark.sql.execution.arrow.ArrowConverters$"
_ATOMIC = "java.util.concurrent.atomic.AtomicReference"
_CONTEXT = "org.apache.spark.TaskContext"
_ITERATOR = "scala.collection.Iterator"
_LIST = "scala.collection.immutable.List"
_RDD = "org.apache.spark.rdd.MapPartitionsRDD"


class Leaf:
    """`cell` holds a List of Arrow batches, each as bytes; every reader of the RDD begins with the
    first. `frame` says that it is one partition, so that plans over it need no exchange. The RDD
    can be read once it is `connect`ed."""

    def __init__(self, session: KeptSession, types: StructType) -> None:
        jvm, handles = session.jvm, session.handles
        self.cell: JavaObject = named(jvm, _ATOMIC)()
        self._handles = handles
        parsed = named(jvm, "org.apache.spark.sql.types.DataType").fromJson(types.json())
        copied = any(map(_holds_several, (one.dataType for one in types)))
        self._read = _read(handles, self.cell, parsed, copied)
        any_class = named(jvm, "scala.reflect.ClassTag").Any()
        self.rdd: JavaObject = named(jvm, _RDD)(
            session.one_partition, None, False, False, False, False, any_class, any_class
        )
        self.sent = empty_batch(handles, parsed).schema
        """The Arrow types in which Spark reads them."""
        none, nil = handles.module("scala.None$"), handles.module(f"{_LIST[:-4]}Nil$")
        catalyst = "org.apache.spark.sql.catalyst"
        one = handles.module(f"{catalyst}.plans.physical.SinglePartition$")
        attributes = handles.module(f"{catalyst}.types.DataTypeUtils$").toAttributes(parsed)
        logical = named(jvm, "org.apache.spark.sql.execution.LogicalRDD")(
            attributes, self.rdd, one, nil, False, none, session.java, none, none, False
        )
        self.frame: DataFrame = session.frame(logical)

    def connect(self) -> None:
        """Called once the RDDs of the plan are made: meanwhile Spark tries out whether their
        functions can be serialized, and some of them hold the whole plan. Ours cannot, and need
        not; so it is only now put into its place."""
        field = self._handles.class_of(_RDD).getDeclaredField("f")
        field.setAccessible(True)
        field.set(self.rdd, self._read)


def _holds_several(type_: DataType) -> bool:
    """Arrow's arrays and maps throw where Spark's own may be asked for an item that is NULL."""
    if isinstance(type_, StructType):
        return any(_holds_several(field.dataType) for field in type_)
    return isinstance(type_, ArrayType | MapType)


def _read(handles: Handles, cell: JavaObject, schema: JavaObject, copied: bool) -> JavaObject:
    """(TaskContext, partition's number, nothing) → Iterator of rows, until that is interrupted. If
    they are to be `copied`, they are Spark's own, as after an exchange."""
    decode = handles.method(
        _ARROW,
        "fromBatchIterator",
        _ITERATOR,
        "org.apache.spark.sql.types.StructType",
        "java.lang.String",
        "boolean",
        "boolean",
        _CONTEXT,
    )
    decode = handles.bound(decode, 2, schema, "UTC", True, False)
    decode = handles.bound(decode, 0, handles.module(_ARROW))
    list_class, iterator = handles.class_of(_LIST), handles.class_of(_ITERATOR)
    batches = handles.bound(handles.method(_ATOMIC, "get"), 0, cell)
    begin = handles.typed(handles.method(_LIST, "iterator"), iterator, list_class)
    batches = handles.then(handles.typed(batches, list_class), begin)
    rows = handles.until_interrupted(handles.fed(decode, 0, batches))
    if copied:
        rows = handles.then(rows, _as_own_rows(handles, schema))
    object_class = handles.class_of("java.lang.Object")
    read = handles.ignoring(rows, 1, object_class, object_class)
    read = handles.typed(read, object_class, object_class, object_class, object_class)
    return handles.interface("scala.Function3", read)


def _as_own_rows(handles: Handles, schema: JavaObject) -> JavaObject:
    """(Iterator) → Iterator."""
    projections = "org.apache.spark.sql.catalyst.expressions.UnsafeProjection$"
    make = handles.method(projections, "create", "org.apache.spark.sql.types.StructType")
    make = handles.bound(make, 0, handles.module(projections), schema)
    make = handles.typed(make, handles.class_of("scala.Function1"))
    return handles.fed(handles.method(_ITERATOR, "map", "scala.Function1"), 1, make)


def empty_batch(handles: Handles, schema: JavaObject) -> pa.Table:
    """No rows of a schema of Spark's, in the Arrow types that Spark sends them in."""
    coded = handles.module(_ARROW).createEmptyArrowBatch(schema, "UTC", True, False)
    return pa.ipc.open_stream(coded).read_all()
