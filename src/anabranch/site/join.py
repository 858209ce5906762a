"""The body of a task that evaluates a MASTER query: windows in Python, expressions in Spark."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from anabranch.link.wire import BORN, EVENT_TIME, POSITION, wire_schema
from anabranch.plan.expressions import Use, flat, flat_name
from anabranch.plan.operators import Condition, Join, Operator, Projection, Selection
from anabranch.site.body import Produced, Taken, apply
from anabranch.site.memory import job_memory
from anabranch.stream.batch import START_WATERMARK
from anabranch.window.join import Arrival, JoinState
from anabranch.window.results import INDEX


class JoinBody:
    """A Join, and the selections and projections behind it.

    The windows find combinations that may be results; one Spark job asks the conditions of them and
    computes the output. (More than one if they are very many, or if conditions on single inputs of
    a product keep them from becoming so.) No candidates, no job.
    """

    def __init__(
        self,
        spark: SparkSession,
        node_inputs: Sequence[tuple[str, pa.Schema]],
        operators: Sequence[Operator],
        output_columns: pa.Schema,
    ) -> None:
        join, *behind = operators
        if not isinstance(join, Join):
            raise TypeError(f"a join is wanted first, not a {join.kind}")
        self._inputs = [wire_schema(schema) for _, schema in node_inputs]
        self._output = wire_schema(output_columns)
        uses = _uses(behind, node_inputs[: len(join.windows)])
        self._evaluator = SparkEvaluator(spark, join.conditions, behind)
        asked = [use for c in join.conditions for use in c.expr.uses]
        self._candidates = _candidates(node_inputs, [*asked, *uses])
        self._new_state = partial(JoinState, join, node_inputs, uses, self._evaluator)
        self._state = self._new_state()

    def open(self, instant: int = START_WATERMARK) -> None:
        self._state.open(instant)
        self.warm_up()

    def warm_up(self) -> bool:
        nulls = pa.Table.from_pylist([{INDEX: 0}], self._candidates)
        with suppress(PySparkException):  # one that cannot take NULLs; its tuples may have none
            self._evaluator.results(nulls)
            return True
        return False

    def reopen(self, instant: int) -> None:
        self._state = self._new_state()
        self._state.open(instant)

    def step(self, inputs: Sequence[Taken]) -> Produced:
        arrivals = [
            _arrival(taken, schema) for taken, schema in zip(inputs, self._inputs, strict=True)
        ]
        for taken in inputs:
            taken.forget()
        outcome = self._state.step(arrivals)
        if outcome.table is None:
            table = self._output.empty_table()
        else:
            table = outcome.table.select(self._output.names).cast(self._output)
        return Produced(table, outcome.watermark, outcome.needless, outcome.instant)

    def close(self) -> None:
        """Nothing is held outside."""


class SparkEvaluator:
    """Conditions and output columns of candidates, each call one narrow Spark job."""

    def __init__(
        self, spark: SparkSession, conditions: Sequence[Condition], behind: Sequence[Operator]
    ) -> None:
        self._spark = spark
        self._conditions = conditions
        self._behind = behind

    def keep(self, candidates: pa.Table, conditions: Sequence[Condition]) -> np.ndarray:
        with job_memory.job(candidates.nbytes):
            frame = _where(self._spark.createDataFrame(candidates), conditions)
            return frame.select(INDEX).toArrow().column(INDEX).to_numpy()

    def results(self, candidates: pa.Table) -> pa.Table:
        with job_memory.job(candidates.nbytes):
            frame = _where(self._spark.createDataFrame(candidates), self._conditions)
            return apply(frame, self._behind, flat, carried=(INDEX,)).toArrow()


def _where(frame: DataFrame, conditions: Sequence[Condition]) -> DataFrame:
    """One condition: Spark asks the conjuncts in the order in which they were written."""
    if not conditions:
        return frame
    return frame.where(" AND ".join(f"({c.expr.sql(flat)})" for c in conditions))


def _arrival(taken: Taken, schema: pa.Schema) -> Arrival:
    positions = [np.arange(b.first, b.last + 1, dtype=np.int64) for b in taken.batches]
    together = np.concatenate(positions) if positions else np.empty(0, np.int64)
    return Arrival(taken.table(schema), together, taken.last, taken.watermark)


def _uses(behind: Sequence[Operator], held: Sequence[tuple[str, pa.Schema]]) -> list[Use]:
    """The columns needed behind the join: up to its first projection; all if there is none."""
    uses: list[Use] = []
    for operator in behind:
        if isinstance(operator, Selection):
            uses += operator.condition.expr.uses
        elif isinstance(operator, Projection):
            return [*uses, *(use for item in operator.items for use in item.expr.uses)]
    return [*uses, *(Use(input=a, column=name) for a, schema in held for name in schema.names)]


def _candidates(inputs: Sequence[tuple[str, pa.Schema]], uses: Sequence[Use]) -> pa.Schema:
    """Of a table of candidates."""
    own = [pa.field(name, pa.int64()) for name in (EVENT_TIME, BORN, POSITION)]
    schemas = {alias: pa.schema([*schema, *own]) for alias, schema in inputs}
    fields = [
        pa.field(flat_name(use), schemas[use.input].field(use.column).type)
        for use in dict.fromkeys(uses)
    ]
    return pa.schema([*fields, pa.field(INDEX, pa.int64())])
