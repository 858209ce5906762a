"""Turns a query into what Spark would run of it on each partition, without the partitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from anabranch.spark.inside import from_arrow_schema
from anabranch.spark.kept.handles import handles_of, named

Build = Callable[[DataFrame], DataFrame]
_SQL = "org.apache.spark.sql.execution"
_CODEGEN = "org.apache.spark.sql.catalyst.expressions.codegen"


class Unfit(Exception):
    """The query has to run as a job; the text says why."""


def sample(spark: SparkSession, schema: pa.Schema) -> DataFrame:
    """An empty frame of `schema` that stands in its plan as the rows of a job would: as an RDD, so
    that Spark knows neither that there are none nor what they are.
    """
    types = from_arrow_schema(schema)
    jvm, session = spark._jvm, spark._jsparkSession
    assert jvm is not None
    parsed = named(jvm, "org.apache.spark.sql.types.DataType").fromJson(types.json())
    rows = spark.sparkContext._jsc.emptyRDD()
    return DataFrame(session.createDataFrame(rows, parsed), spark)


def stages(spark: SparkSession, frame: DataFrame) -> list[JavaObject]:
    """`PartitionEvaluatorFactory`s, to be applied one after the other to the rows of the one leaf
    of the plan of `frame`. Raises Unfit."""
    jvm = spark._jvm
    assert jvm is not None
    if not frame._jdf.queryExecution().analyzed().deterministic():
        raise Unfit("it gives another value each time it is evaluated")
    found: list[JavaObject] = []
    node = frame._jdf.queryExecution().executedPlan()
    while not node.children().isEmpty():
        if node.children().size() > 1:
            raise Unfit(f"{node.nodeName()} reads several inputs")
        if stage := _whole_stage(jvm, node) or _operator(jvm, node):
            found.append(stage)
        elif not _passes(node):
            raise Unfit(f"{node.nodeName()} needs a job")
        node = _below(node) if stage and _is(node, "WholeStageCodegenExec") else _child(node)
    if not _is(node, "RDDScanExec"):
        raise Unfit(f"{node.nodeName()} is not the input")
    return found[::-1]


@dataclass
class Origins:
    """What the outputs of a plan take from the columns of its leaf."""

    outputs: list[str | None]
    """For each output the column that it is, unchanged; None if it is computed."""
    read: set[str] = field(default_factory=set)
    """Those that something is computed of."""
    keeps_rows: bool = True
    """Each row of the input gives one, in order."""


def origins(frame: DataFrame, names: Sequence[str]) -> Origins | None:
    """The origins; None if the plan of `frame`, whose leaf has the columns `names`, does not
    tell.
    """
    top = node = frame._jdf.queryExecution().executedPlan()
    above: list[JavaObject] = []
    while not node.children().isEmpty():
        if _is(node, "ProjectExec") or _is(node, "FilterExec"):
            above.append(node)
        elif not _passes(node):
            return None
        node = _child(node)
    if not _is(node, "RDDScanExec"):
        return None
    found = Origins([])
    known = dict(zip((_id(one) for one in _listed(node.output())), names, strict=True))
    for node in reversed(above):
        if _is(node, "FilterExec"):
            found.keeps_rows = False
            found.read |= {
                known[i] for i in _ids(node.condition().references().toSeq()) & set(known)
            }
        else:
            known = _projected(node, known, found.read)
    found.outputs = [known.get(_id(one)) for one in _listed(top.output())]
    return found


def _projected(node: JavaObject, known: dict[int, str], read: set[str]) -> dict[int, str]:
    """The columns that exist after a projection; it computes with those in `read`."""
    there: dict[int, str] = {}
    for item in _listed(node.projectList()):
        alias = item.nodeName() == "Alias"
        source = item.child() if alias else item
        if source.nodeName() != "AttributeReference":
            read |= {known[i] for i in _ids(source.references().toSeq()) & set(known)}
        elif (i := _id(source)) in known:
            there[_id(item)] = known[i]
    return there


def _id(attribute: JavaObject) -> int:
    return int(attribute.exprId().id())


def _ids(attributes: JavaObject) -> set[int]:
    return {_id(one) for one in _listed(attributes)}


def _listed(sequence: JavaObject) -> list[JavaObject]:
    return [sequence.apply(i) for i in range(sequence.size())]


def _is(node: JavaObject, name: str) -> bool:
    return bool(node.getClass().getName() == f"{_SQL}.{name}")


def _child(node: JavaObject) -> JavaObject:
    return node.children().apply(0)


def _passes(node: JavaObject) -> bool:
    """Whether it hands its child's rows on: a stage whose code is too long, which Spark does not
    compile either, and the boundary between stages.
    """
    return _is(node, "WholeStageCodegenExec") or _is(node, "InputAdapter")


def _below(node: JavaObject) -> JavaObject:
    """The node from which a compiled stage takes its rows."""
    node = _child(node)
    while not (_is(node, "InputAdapter") or node.children().isEmpty()):
        if node.children().size() > 1:
            raise Unfit(f"{node.nodeName()} reads several inputs")
        if not any(_is(node, name) for name in ("ProjectExec", "FilterExec", "GenerateExec")):
            raise Unfit(f"{node.nodeName()} needs a job")
        node = _child(node)
    return node


def _whole_stage(jvm: JavaObject, node: JavaObject) -> JavaObject | None:
    """The compiled stage; None if it is no such stage, or one that Spark would not compile
    either.
    """
    if not _is(node, "WholeStageCodegenExec"):
        return None
    try:
        code = node.doCodeGen()
    except (Py4JError, PySparkException):  # a pattern that is none, say: the job says what it is
        raise Unfit("Spark cannot make its code beforehand") from None
    context, source = code._1(), code._2()
    generator = handles_of(jvm).module(f"{_CODEGEN}.CodeGenerator$")
    try:
        compiled = generator.compile(source)._2()
    except (Py4JError, PySparkException):
        return None
    if compiled.maxMethodCodeSize() > node.conf().hugeMethodLimit():
        return None
    references = context.references().toArray(named(jvm, "scala.reflect.ClassTag").Any())
    return named(jvm, f"{_SQL}.WholeStageCodegenEvaluatorFactory")(
        named(jvm, "scala.util.Right")(source), node.longMetric("pipelineTime"), references
    )


def _operator(jvm: JavaObject, node: JavaObject) -> JavaObject | None:
    """The operator of a plan that is too wide to be compiled as a whole."""
    if _is(node, "ProjectExec"):
        return named(jvm, f"{_SQL}.ProjectEvaluatorFactory")(
            node.projectList(), _child(node).output()
        )
    if _is(node, "FilterExec"):
        rows = node.longMetric("numOutputRows")
        factory = named(jvm, f"{_SQL}.FilterEvaluatorFactory")
        return factory(node.condition(), _child(node).output(), rows)
    return None
