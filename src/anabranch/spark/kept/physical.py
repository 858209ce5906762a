"""From a query to the RDD that computes it in one partition, without exchanges, jobs or broadcasts.

Spark's own planner makes the physical plan. What it takes for granted, several partitions and a
cluster, is put right in it before Spark prepares it for execution: joins that would broadcast or
sort become hash joins, all that may be several partitions becomes one, and a scalar subquery, for
which Spark would run a job while the plan is made, becomes an RDD of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame

from anabranch.spark.kept.handles import named
from anabranch.spark.kept.kept_session import KeptSession
from anabranch.spark.kept.task import ATOMIC
from anabranch.spark.kept.trees import kind, listed, rebuilt, scala_seq, walk, with_expressions

_SQL = "org.apache.spark.sql.execution"
_CATALYST = "org.apache.spark.sql.catalyst"
_PATTERNS = f"{_CATALYST}.trees.TreePattern$"
ROW_WISE = {
    "CoalesceExec",
    "ExpandExec",
    "FilterExec",
    "GenerateExec",
    "InputAdapter",
    "ProjectExec",
    "RDDScanExec",
    "WholeStageCodegenExec",
}
"""What gives for several batches the results of each."""
_WHOLE = {
    "CollectLimitExec",
    "GlobalLimitExec",
    "HashAggregateExec",
    "LocalLimitExec",
    "LocalTableScanExec",
    "MergingSessionsExec",
    "ObjectHashAggregateExec",
    "OneRowRelationExec",
    "RangeExec",
    "ShuffledHashJoinExec",
    "SortAggregateExec",
    "SortExec",
    "SortMergeJoinExec",
    "TakeOrderedAndProjectExec",
    "UnionExec",
    "UpdatingSessionsExec",
    "WindowExec",
    "WindowGroupLimitExec",
}
_JOINS = {"BroadcastHashJoinExec", "SortMergeJoinExec"}
_CROSS_JOINS = {"BroadcastNestedLoopJoinExec", "CartesianProductExec"}


class Unfit(Exception):
    """The query has to run as a job; the text says why."""


@dataclass(frozen=True)
class Scalar:
    """A scalar subquery: the plan reads `cell`, where a value of `type` has to be by then, which is
    in the only row of `rdd`."""

    cell: JavaObject
    type: JavaObject
    rdd: JavaObject


@dataclass(frozen=True)
class Physical:
    """`scalars` are to be evaluated before `rdd`, in their order."""

    rdd: JavaObject
    scalars: list[Scalar] = field(default_factory=list)


@dataclass
class Prepared:
    """A physical plan that can be executed in one partition."""

    plan: JavaObject
    subqueries: list[tuple[JavaObject, JavaObject, JavaObject]] = field(default_factory=list)
    """Cells, types and plans, inner ones first."""

    @property
    def row_wise(self) -> bool:
        """Each row of the input gives its results by itself, in order."""
        return all(kind(node) in ROW_WISE for node in walk(self.plan))

    def executed(self) -> Physical:
        """Called once."""
        scalars = [Scalar(cell, type_, plan.execute()) for cell, type_, plan in self.subqueries]
        return Physical(self.plan.execute(), scalars)


def prepared(session: KeptSession, frame: DataFrame, inputs: Sequence[JavaObject]) -> Prepared:
    """`inputs` are the RDDs that it may read. Raises Unfit."""
    execution = frame._jdf.queryExecution()
    _same_each_time(session, execution.analyzed())
    with session.active():
        found = Prepared(None)
        found.plan = _prepared(session, execution.optimizedPlan(), found)
    for plan in (found.plan, *(plan for _, _, plan in found.subqueries)):
        _check(session, plan, inputs)
    return found


def _same_each_time(session: KeptSession, analyzed: JavaObject) -> None:
    if not analyzed.deterministic():
        raise Unfit("it gives another value each time it is evaluated")
    if analyzed.containsPattern(session.handles.module(_PATTERNS).CURRENT_LIKE()):
        raise Unfit(
            "it asks for the time or for who runs it, which a kept plan would not ask again"
        )


def _prepared(session: KeptSession, optimized: JavaObject, found: Prepared) -> JavaObject:
    execution = session.handles.module(f"{_SQL}.QueryExecution$")
    none = session.handles.module("scala.None$")
    plan = execution.createSparkPlan(session.java.sessionState().planner(), optimized.clone())
    plan = _without_subqueries(session, plan, found)
    plan = rebuilt(session.jvm, plan, lambda node: _in_one_partition(session, node))
    rules = execution.preparations(session.java, none, False)
    plan = execution.prepareForExecution(rules, plan)
    return rebuilt(session.jvm, plan, lambda node: _without_exchange(session, node))


def _without_subqueries(session: KeptSession, plan: JavaObject, found: Prepared) -> JavaObject:
    """Scalar subqueries are read from cells."""
    if not plan.containsPattern(session.handles.module(_PATTERNS).SCALAR_SUBQUERY()):
        return plan
    pairs: list[tuple[JavaObject, JavaObject]] = []
    for node in walk(plan):
        if node.subqueries().isEmpty():
            continue
        for item in (one for each in listed(node.expressions()) for one in walk(each)):
            if kind(item) == "ScalarSubquery" and not any(item.equals(old) for old, _ in pairs):
                cell = named(session.jvm, ATOMIC)()
                inner = _prepared(session, item.plan(), found)
                found.subqueries.append((cell, item.dataType(), inner))
                pairs.append((item, _reading(session, cell, item.dataType())))
    return with_expressions(session.jvm, plan, pairs)


def _reading(session: KeptSession, cell: JavaObject, type_: JavaObject) -> JavaObject:
    """An expression: what is in the cell when it is evaluated."""
    jvm, handles = session.jvm, session.handles
    nil = handles.module("scala.collection.immutable.Nil$")
    object_type = named(jvm, "org.apache.spark.sql.types.ObjectType")(handles.class_of(ATOMIC))
    literal = named(jvm, f"{_CATALYST}.expressions.Literal")(cell, object_type)
    invoke = named(jvm, f"{_CATALYST}.expressions.objects.Invoke")
    return invoke(literal, "get", type_, nil, nil, True, True, True)


def _in_one_partition(session: KeptSession, node: JavaObject) -> JavaObject:
    name = kind(node)
    if name in _CROSS_JOINS:
        return _cross_join(session, node, name)
    if name in _JOINS:
        return _hash_join(session, node)
    if name == "UnionExec" or node.children().isEmpty():
        return _one(session, node)
    return _without_exchange(session, node)


def _without_exchange(session: KeptSession, node: JavaObject) -> JavaObject:
    return _one(session, node.child()) if kind(node) == "ShuffleExchangeExec" else node


def _one(session: KeptSession, node: JavaObject) -> JavaObject:
    """`node` as one partition."""
    if kind(node.outputPartitioning()) == "SinglePartition$":
        return node
    return named(session.jvm, f"{_SQL}.CoalesceExec")(1, node)


def _hash_join(session: KeptSession, node: JavaObject) -> JavaObject:
    """Sorting is more work than hashing, and a broadcast is a job. (Types whose values may be equal
    without having the same bytes cannot be hashed, and Spark sorts them.)"""
    binary = session.handles.module(f"{_CATALYST}.util.UnsafeRowUtils$")
    keys = [*listed(node.leftKeys()), *listed(node.rightKeys())]
    if not all(binary.isBinaryStable(key.dataType()) for key in keys):
        return node
    return _joined(session, node, node.joinType(), node.leftKeys(), node.rightKeys())


def _cross_join(session: KeptSession, node: JavaObject, name: str) -> JavaObject:
    """A hash join of rows that all have the key 1; the join's condition stays."""
    one = session.handles.module(f"{_CATALYST}.expressions.Literal$").apply(1)
    keys = scala_seq(session.jvm, [one])
    inner = session.handles.module(f"{_CATALYST}.plans.Inner$")
    type_ = inner if name == "CartesianProductExec" else node.joinType()
    return _joined(session, node, type_, keys, keys)


def _joined(
    session: KeptSession,
    node: JavaObject,
    type_: JavaObject,
    left_keys: JavaObject,
    right_keys: JavaObject,
) -> JavaObject:
    """The side whose rows all appear is read row by row; the other one is in the hash table."""
    side = "BuildLeft$" if kind(type_) == "RightOuter$" else "BuildRight$"
    build = session.handles.module(f"{_CATALYST}.optimizer.{side}")
    return named(session.jvm, f"{_SQL}.joins.ShuffledHashJoinExec")(
        left_keys, right_keys, type_, build, node.condition(), node.left(), node.right(), False
    )


def _check(session: KeptSession, plan: JavaObject, inputs: Sequence[JavaObject]) -> None:
    """Nothing is in the plan but what is known to be a function of its inputs, in this process."""
    numbers = {rdd.id() for rdd in inputs}
    for node in walk(plan):
        name = kind(node)
        if name not in ROW_WISE and name not in _WHOLE:
            raise Unfit(f"{node.nodeName()} needs a job")
        if name == "RDDScanExec" and node.rdd().id() not in numbers:
            raise Unfit("it reads an RDD that is not its input")
    if plan.containsPattern(session.handles.module(_PATTERNS).PLAN_EXPRESSION()):
        raise Unfit("it has a subquery that needs a job")
