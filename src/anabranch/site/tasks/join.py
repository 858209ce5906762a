"""The body of a task that evaluates a MASTER query: windows in Python, expressions in Spark.

An expression may fail on a tuple that the join would never have evaluated it on: one that meets no
other, or that a condition written before it keeps away. So a failure here says nothing. The join
does without the index from then on, tries all combinations, and fails where the text does.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from anabranch.errors import TaskError
from anabranch.link.wire import BORN, EVENT_TIME, POSITION, wire_schema
from anabranch.plan.expressions import Expr, Use, flat, flat_name, plain, quoted
from anabranch.plan.operators import Column, Condition, Join, Operator, Projection, Selection
from anabranch.site.tasks.body import Produced, Taken, apply, as_schema
from anabranch.snapshot.state import KeptPieces, State
from anabranch.spark.kept.expressions import Evaluation, Expressions
from anabranch.spark.session import arrow_schema
from anabranch.stream.batch import START_WATERMARK
from anabranch.window.join.join import Arrival, JoinState
from anabranch.window.join.results import INDEX

Inputs = Sequence[tuple[str, pa.Schema]]


Keys = Mapping[str, tuple[Expr, pa.DataType]]


class JoinKeys:
    """The values that are computed of each input of `join`."""

    def __init__(self, expressions: Expressions, join: Join, inputs: Inputs) -> None:
        self._by_input: dict[str, dict[str, tuple[Expr, pa.DataType]]] = {}
        conditions = tuple(self._with_columns(one) for one in join.conditions)
        self.join = join.model_copy(update={"conditions": conditions})
        """With its equalities as those of columns."""
        self._evaluations = {
            alias: expressions.evaluation(
                _needed(dict(inputs)[alias], keys), partial(_select, keys)
            )
            for alias, keys in self._by_input.items()
        }
        self.inputs = [(alias, self._extended(alias, schema)) for alias, schema in inputs]
        self.uses = frozenset(
            Use(input=alias, column=name) for alias, keys in self._by_input.items() for name in keys
        )

    def add(self, alias: str, table: pa.Table) -> pa.Table:
        """`table` of the tuples of an input, with its keys. Raises what Spark raises."""
        keys = self._by_input.get(alias)
        if not keys or not len(table):
            return table
        evaluate = self._evaluations[alias]
        keys_ = evaluate(table.select(evaluate.schema.names))
        for name, (_, type_) in keys.items():
            table = table.append_column(name, keys_.column(name).cast(type_))
        return table

    def add_none(self, alias: str, table: pa.Table) -> pa.Table:
        """`table` with NULLs in their place."""
        for name, (_, type_) in self._by_input.get(alias, {}).items():
            table = table.append_column(name, pa.nulls(len(table), type_))
        return table

    def _with_columns(self, condition: Condition) -> Condition:
        if condition.computed is None or condition.indexed is None:
            return condition
        left, right = condition.computed.sides
        (type_,) = arrow_schema([Column(name="key", type=condition.computed.type)]).types
        equal = (self._column(left, type_), self._column(right, type_))
        return condition.model_copy(update={"equal": equal})

    def _column(self, side: Expr, type_: pa.DataType) -> Use:
        if side.column:
            return side.column
        (alias,) = side.inputs
        use = Use(input=alias, column=f"= {side.sql(plain)}")
        self._by_input.setdefault(alias, {})[use.column] = side, type_
        return use

    def _extended(self, alias: str, schema: pa.Schema) -> pa.Schema:
        for name, (_, type_) in self._by_input.get(alias, {}).items():
            schema = schema.append(pa.field(name, type_))
        return schema


def _needed(schema: pa.Schema, keys: Keys) -> pa.Schema:
    """The columns that `keys` are computed from."""
    own = wire_schema(schema)
    names = dict.fromkeys(use.column for expr, _ in keys.values() for use in expr.uses)
    return pa.schema([own.field(name) for name in names])


def _select(keys: Keys, frame: DataFrame) -> DataFrame:
    items = [f"{expr.sql(plain)} AS {quoted(name)}" for name, (expr, _) in keys.items()]
    return frame.selectExpr(*items)


class JoinBody:
    """A Join, and the selections and projections after it.

    The windows find combinations that may be results; Spark evaluates the conditions on them and
    computes the output. (In parts if they are very many; and conditions on single inputs of a
    product beforehand, if that keeps them from becoming so.)
    """

    def __init__(
        self,
        expressions: Expressions,
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
        needed = [use for c in join.conditions for use in c.expr.uses]
        self._candidates = _candidates(node_inputs, [*needed, *uses])
        self._expressions = expressions
        self._evaluator = SparkEvaluator(expressions, self._candidates, join.conditions, behind)
        self._interrupted = threading.Event()
        self._aliases = [alias for alias, _ in node_inputs]
        self._keys = JoinKeys(expressions, join, node_inputs)
        self._new_state = partial(
            JoinState,
            self._keys.join,
            self._keys.inputs,
            uses,
            self._evaluator,
            check=self._check,
            computed=self._keys.uses,
        )
        self._state = self._new_state()

    def open(self, instant: int = START_WATERMARK) -> None:
        self._state.open(instant)
        self.warm_up()

    def warm_up(self) -> bool:
        nulls = pa.Table.from_pylist([{INDEX: 0}], self._candidates)
        with suppress(PySparkException):  # one that cannot take NULLs; its tuples may have none
            self._evaluator.results(nulls)
            for alias, schema in zip(self._aliases, self._inputs, strict=True):
                self._keys.add(alias, pa.Table.from_pylist([{}], schema))
            return True
        return False

    def reopen(self, instant: int) -> None:
        self._state = self._new_state()
        self._state.open(instant)

    @property
    def state_bytes(self) -> int:
        return self._state.nbytes

    def snapshot(self) -> State:
        return self._state.snapshot()

    def restore(self, kept: KeptPieces) -> None:
        self._state.restore(kept)

    def step(self, inputs: Sequence[Taken]) -> Produced:
        arrivals = [
            _arrival(taken, schema) for taken, schema in zip(inputs, self._inputs, strict=True)
        ]
        for taken in inputs:
            taken.forget()
        arrivals = [self._with_keys(*one) for one in zip(self._aliases, arrivals, strict=True)]
        outcome = self._state.step(arrivals)
        if outcome.table is None:
            table = self._output.empty_table()
        else:
            table = as_schema(outcome.table.select(self._output.names), self._output)
        return Produced(
            table, outcome.watermark, outcome.needless, outcome.instant, more=outcome.more
        )

    def _with_keys(self, alias: str, arrival: Arrival) -> Arrival:
        try:
            table = None if self._state.tries_all else self._keys.add(alias, arrival.table)
        except PySparkException:
            self._check()
            self._state.try_all()
            table = None
        if table is None:
            table = self._keys.add_none(alias, arrival.table)
        return replace(arrival, table=table)

    def interrupt(self) -> None:
        self._interrupted.set()
        self._expressions.interrupt()

    def abandon(self) -> None:
        self._expressions.abandon()

    def _check(self) -> None:
        if self._interrupted.is_set():
            raise TaskError("stopped")

    def close(self) -> None:
        self._expressions.close()


class SparkEvaluator:
    """Evaluates conditions and output columns of `candidates`."""

    def __init__(
        self,
        expressions: Expressions,
        candidates: pa.Schema,
        conditions: Sequence[Condition],
        behind: Sequence[Operator],
    ) -> None:
        self._expressions = expressions
        self._kept: dict[tuple[pa.Schema, tuple[Condition, ...]], Evaluation] = {}

        def build(frame: DataFrame) -> DataFrame:
            return apply(_where(frame, conditions), behind, flat, carried=(INDEX,))

        self._candidates = candidates
        self._results = expressions.evaluation(candidates, build)

    def keep(self, candidates: pa.Table, conditions: Sequence[Condition]) -> np.ndarray:
        key = candidates.schema, tuple(conditions)
        evaluate = self._kept.get(key)
        if evaluate is None:
            evaluate = self._kept[key] = self._expressions.evaluation(
                candidates.schema, lambda frame: _where(frame, conditions).select(INDEX)
            )
        values: np.ndarray = evaluate(candidates).column(INDEX).to_numpy()
        return values

    def results(self, candidates: pa.Table) -> pa.Table:
        return self._results(candidates.select(self._candidates.names))


def _where(frame: DataFrame, conditions: Sequence[Condition]) -> DataFrame:
    """The frame with one condition applied: Spark evaluates the conjuncts in the order in which
    they were written.
    """
    if not conditions:
        return frame
    return frame.where(" AND ".join(f"({c.expr.sql(flat)})" for c in conditions))


def _arrival(taken: Taken, schema: pa.Schema) -> Arrival:
    positions = [np.arange(b.first, b.last + 1, dtype=np.int64) for b in taken.batches]
    together = np.concatenate(positions) if positions else np.empty(0, np.int64)
    return Arrival(taken.table(schema), together, taken.last, taken.watermark)


def _uses(behind: Sequence[Operator], held: Sequence[tuple[str, pa.Schema]]) -> list[Use]:
    """The columns needed after the join: up to its first projection; all if there is none."""
    uses: list[Use] = []
    for operator in behind:
        if isinstance(operator, Selection):
            uses += operator.condition.expr.uses
        elif isinstance(operator, Projection):
            return [*uses, *(use for item in operator.items for use in item.expr.uses)]
    return [*uses, *(Use(input=a, column=name) for a, schema in held for name in schema.names)]


def _candidates(inputs: Sequence[tuple[str, pa.Schema]], uses: Sequence[Use]) -> pa.Schema:
    """The schema of a table of candidates."""
    own = [pa.field(name, pa.int64()) for name in (EVENT_TIME, BORN, POSITION)]
    schemas = {alias: pa.schema([*schema, *own]) for alias, schema in inputs}
    fields = [
        pa.field(flat_name(use), schemas[use.input].field(use.column).type)
        for use in dict.fromkeys(uses)
    ]
    return pa.schema([*fields, pa.field(INDEX, pa.int64())])
