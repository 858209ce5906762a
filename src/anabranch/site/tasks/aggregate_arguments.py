"""Keys and arguments of aggregates: columns as they are, everything else by Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame

from anabranch.plan.expressions import quoted
from anabranch.spark.kept.expressions import Expressions
from anabranch.window.aggregate.cells import Argument


class Arguments:
    """Of tables of `schema`: the values of `arguments`, a row per tuple, in order."""

    def __init__(
        self, expressions: Expressions, schema: pa.Schema, arguments: Sequence[Argument]
    ) -> None:
        direct = {one: _direct(one, schema) for one in arguments}
        self._direct = {one: take for one, take in direct.items() if take}
        self._names = {one: f"_a{i}" for i, one in enumerate(arguments) if not direct[one]}
        self._evaluate = expressions.evaluation(schema, self._select) if self._names else None

    def _select(self, frame: DataFrame) -> DataFrame:
        return frame.selectExpr(*(f"{one.spark} AS {name}" for one, name in self._names.items()))

    def open(self) -> None:
        if self._evaluate:
            self._evaluate.open()

    def __call__(self, table: pa.Table) -> Mapping[Argument, pa.ChunkedArray]:
        found = {one: take(table) for one, take in self._direct.items()}
        if self._evaluate:
            given = self._evaluate(table)
            found |= {one: given.column(name) for one, name in self._names.items()}
        return found


Take = Callable[[pa.Table], pa.ChunkedArray]


def _direct(argument: Argument, schema: pa.Schema) -> Take | None:
    """How to take it from a table, if it is a column there, or a number to be a DOUBLE."""
    names = {quoted(name): name for name in schema.names}
    name = names.get(argument.sql)
    if name is None:
        return None
    if not argument.double:
        return lambda table: table.column(name)
    type = schema.field(name).type
    if pa.types.is_integer(type) or pa.types.is_floating(type):
        return lambda table: table.column(name).cast(pa.float64(), safe=False)
    return None
