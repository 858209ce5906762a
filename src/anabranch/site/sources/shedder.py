"""Drops what a stream brings beyond its limit, least valuable first, before it has a position."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from anabranch.deadline.urgency import Allowance, most_valuable
from anabranch.plan.expressions import plain
from anabranch.plan.service_levels import Shed
from anabranch.spark.kept.expressions import Expressions, InSlot, Mode, at_once

VALUE = "_value"


class Shedder:
    """The shedder of one stream. `shed` counts the tuples that were dropped."""

    def __init__(
        self,
        spark: SparkSession,
        shed_: Shed,
        columns: pa.Schema,
        plans: Mode = "auto",
        in_slot: InSlot = at_once,
    ) -> None:
        self.shed = 0
        self._columns = columns
        self._allowance = Allowance(shed_.most, shed_.per_us)
        self._column = shed_.keep.column
        self._valued: tuple[pa.Table, np.ndarray] | None = None
        self._expressions = Expressions(spark, plans, in_slot=in_slot)
        keep = shed_.keep.sql(plain)

        def valued(frame: DataFrame) -> DataFrame:
            return frame.selectExpr(f"CAST({keep} AS DOUBLE) AS {VALUE}")

        self._evaluate = self._expressions.evaluation(columns, valued)

    def allowed(self, table: pa.Table, now_us: int) -> int:
        """How many of its tuples may pass. It is decided once: a later reading takes the number
        from the journal.
        """
        return self._allowance.take(now_us, len(table), lambda: self._values(table))

    def kept(self, table: pa.Table, allowed: int) -> pa.Table:
        """The `allowed` most valuable tuples, in order."""
        if len(table) <= allowed:
            return table
        self.shed += len(table) - allowed
        if not allowed:
            return table.slice(0, 0)
        return table.take(pa.array(most_valuable(self._values(table), allowed)))

    def _values(self, table: pa.Table) -> np.ndarray:
        """The values of the tuples. They are needed twice for a table that is read for the first
        time.
        """
        if self._valued is None or self._valued[0] is not table:
            self._valued = table, self._evaluated(table)
        return self._valued[1]

    def _evaluated(self, table: pa.Table) -> np.ndarray:
        """The values, evaluated. A column needs no Spark, unless only Spark can turn it into a
        number.
        """
        if self._column:
            value = table.column(self._column.column)
            if pa.types.is_floating(value.type) or pa.types.is_integer(value.type):
                return _doubles(value)
        return _doubles(self._evaluate(table.select(self._columns.names)).column(VALUE))

    def close(self) -> None:
        self._expressions.close()


def _doubles(values: pa.ChunkedArray) -> np.ndarray:
    filled = pc.fill_null(values.cast(pa.float64(), safe=False), float("nan"))
    doubles: np.ndarray = filled.to_numpy()
    return doubles
