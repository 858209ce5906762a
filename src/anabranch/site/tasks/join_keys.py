"""Equalities of expressions, as columns in front of a join.

An expression may fail on a tuple that the join would never have evaluated it on: one that meets no
other, or that a condition written before it keeps away. So a failure here says nothing. The join
does without the index from then on, tries all combinations, and fails where the text does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame

from anabranch.link.wire import wire_schema
from anabranch.plan.expressions import Expr, Use, plain, quoted
from anabranch.plan.operators import Column, Condition, Join
from anabranch.spark.kept.expressions import Expressions
from anabranch.spark.session import arrow_schema

Inputs = Sequence[tuple[str, pa.Schema]]


Keys = Mapping[str, tuple[Expr, pa.DataType]]


class JoinKeys:
    """What is computed of each input of `join`."""

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
        found = evaluate(table.select(evaluate.schema.names))
        for name, (_, type_) in keys.items():
            table = table.append_column(name, found.column(name).cast(type_))
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
    """The columns that `keys` are computed of."""
    own = wire_schema(schema)
    names = dict.fromkeys(use.column for expr, _ in keys.values() for use in expr.uses)
    return pa.schema([own.field(name) for name in names])


def _select(keys: Keys, frame: DataFrame) -> DataFrame:
    items = [f"{expr.sql(plain)} AS {quoted(name)}" for name, (expr, _) in keys.items()]
    return frame.selectExpr(*items)
