"""Partial aggregates of tuples, by Spark."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
from py4j.java_gateway import JavaObject
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

from anabranch.link.wire import POSITION
from anabranch.plan.expressions import plain
from anabranch.plan.operators import Item
from anabranch.site.memory import job_memory
from anabranch.window.aggregate import Lifted
from anabranch.window.aggregate_calls import CallPlan
from anabranch.window.aggregate_custom import Custom
from anabranch.window.aggregate_keys import codes_of, first_of_each, rows_of
from anabranch.window.aggregate_pending import Ready
from anabranch.window.aggregate_state import Columns, Values
from anabranch.window.panes import Ints

_GROUP = "_group"


class SparkLift:
    """One job per call, and one more for each COUNT(DISTINCT …) and for users' aggregates.

    A sum of floats depends on the order it is taken in, which is to be that of positions. So all
    tuples are in one partition, where Spark's hash aggregate adds each row to its group as it comes
    by. That breaks only if its hash table does not fit in memory and Spark goes over to sorting:
    its own metrics say so, and then the job is done again over sorted rows, which gives the same
    sums. (Spark sorts from the start if a state is of variable length, as MIN of a string: same.)
    """

    def __init__(self, spark: SparkSession, keys: Sequence[Item], plan: CallPlan) -> None:
        self._spark = spark
        self._plan = plan
        cells = plan.layout.cells
        self._keys = {f"_k{number}": key.expr.sql(plain) for number, key in enumerate(keys)}
        lifts = dict.fromkeys(lift for cell in cells for lift in cell.lifts)
        self._lifts = {lift: f"_c{number}" for number, lift in enumerate(lifts)}
        self._ordered = any(cell.ordered for cell in cells)
        self._custom = [cell for cell in cells if isinstance(cell, Custom)]
        self._always_sort = False
        self.sorted_jobs = 0

    def __call__(self, ready: Ready) -> Lifted:
        table = ready.table.append_column(POSITION, pa.array(ready.positions))
        table = table.append_column(_GROUP, pa.array(ready.groups))
        with job_memory.job(table.nbytes):
            frame = self._spark.createDataFrame(table).coalesce(1)
            lifted = self._lift(frame)
            groups, keys = self._groups_and_keys(lifted)
            columns = self._columns(lifted, self._fold_custom(frame, ready, lifted))
            distinct = [self._distinct(frame, arguments) for arguments in self._plan.distinct]
        return Lifted(groups, keys, columns, distinct)

    def _lift(self, frame: DataFrame) -> pa.Table:
        if not (self._ordered and self._always_sort):
            grouped = self._group(frame)
            table = grouped.toArrow()
            node = _aggregate_node(grouped) if self._ordered else None
            if node is None or (_hashes(node) and not _fell_back(node)):
                return table
            self._always_sort = not _hashes(node)
        self.sorted_jobs += 1
        keys = [expr(key) for key in self._keys.values()]
        frame = frame.sortWithinPartitions(expr(_GROUP), *keys, expr(POSITION))
        # A state of variable length has Spark take its groups from the order of the rows.
        return self._group(frame, expr(f"min(CAST({POSITION} AS STRING)) AS _sorted")).toArrow()

    def _group(self, frame: DataFrame, *more: SparkColumn) -> DataFrame:
        return frame.groupBy(*self._by).agg(*self._aggregates, *more)

    @cached_property
    def _by(self) -> list[SparkColumn]:
        """Parsed once: each costs several calls into the JVM."""
        return [expr(_GROUP), *(expr(f"{key} AS {name}") for name, key in self._keys.items())]

    @cached_property
    def _aggregates(self) -> list[SparkColumn]:
        return [expr(f"{lift} AS {name}") for lift, name in self._lifts.items()]

    def _groups_and_keys(self, table: pa.Table) -> tuple[Ints, list[pa.ChunkedArray]]:
        return table.column(_GROUP).to_numpy(), [table.column(name) for name in self._keys]

    def _columns(self, lifted: pa.Table, custom: Mapping[Custom, Values]) -> Columns:
        columns: Columns = []
        for cell in self._plan.layout.cells:
            if isinstance(cell, Custom):
                columns.append(custom[cell])
            else:
                columns += cell.load([lifted.column(self._lifts[lift]) for lift in cell.lifts])
        return columns

    def _fold_custom(
        self, frame: DataFrame, ready: Ready, lifted: pa.Table
    ) -> dict[Custom, Values]:
        """Partials of users' aggregates in the order of the rows of `lifted`."""
        if not self._custom:
            return {}
        arguments = dict.fromkeys(sql for cell in self._custom for sql in cell.arguments)
        names = {sql: f"_a{number}" for number, sql in enumerate(arguments)}
        wanted = [f"{sql} AS {name}" for name, sql in self._keys.items()]
        wanted += [f"{sql} AS {name}" for sql, name in names.items()]
        rows = frame.selectExpr(_GROUP, *wanted).toArrow()
        groups, keys = self._groups_and_keys(rows)
        numbers, starts = first_of_each(codes_of([rows.column(_GROUP), *keys], len(groups)))
        # Which group is which: each has its own first position, and they are numbered by it.
        first = lifted.column(self._lifts[self._plan.first.lifts[0]]).to_numpy()
        order = np.searchsorted(ready.positions[starts], first)
        values = {sql: rows.column(name).to_pylist() for sql, name in names.items()}
        folded = {}
        for cell in self._custom:
            given = [values[sql] for sql in cell.arguments]
            tuples = zip(*given, strict=True) if given else iter([()] * len(groups))
            folded[cell] = cell.fold(numbers, len(starts), tuples)[order]
        return folded

    def _distinct(
        self, frame: DataFrame, arguments: Sequence[str]
    ) -> tuple[Ints, list[pa.ChunkedArray], list[Hashable]]:
        names = [f"_a{number}" for number in range(len(arguments))]
        wanted = [f"{sql} AS {name}" for name, sql in self._keys.items()]
        wanted += [f"{sql} AS {name}" for sql, name in zip(arguments, names, strict=True)]
        rows = frame.selectExpr(_GROUP, *wanted).dropna(subset=names).distinct().toArrow()
        groups, keys = self._groups_and_keys(rows)
        return groups, keys, rows_of([rows.column(name) for name in names])


def _aggregate_node(frame: DataFrame) -> JavaObject:
    """The part of the plan that was executed which aggregates; it is the top one or nearly."""
    node = frame._jdf.queryExecution().executedPlan()
    while not node.nodeName().endswith("Aggregate"):
        children = node.children()
        if children.isEmpty():
            break
        node = children.apply(0)
    return node


def _hashes(node: JavaObject) -> bool:
    return node.nodeName() == "HashAggregate"


def _fell_back(node: JavaObject) -> bool:
    """The hash table did not fit: groups were spilled and merged again in any order."""
    return node.metrics().apply("numTasksFallBacked").value() > 0
