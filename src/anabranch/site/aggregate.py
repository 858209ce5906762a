"""The body of a window aggregate: Spark lifts tuples, `window.aggregate` does the windows."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from anabranch.errors import AnabranchError
from anabranch.link.wire import BORN, EVENT_TIME, wire_schema
from anabranch.plan.expressions import plain, quoted
from anabranch.plan.operators import Aggregate, Column, Operator, Projection, Selection
from anabranch.plan.windows import RowPanes, TimePanes
from anabranch.site.aggregate_lift import SparkLift
from anabranch.site.aggregate_user import load_custom
from anabranch.site.body import Produced, Taken
from anabranch.site.memory import job_memory
from anabranch.site.spark import arrow_schema
from anabranch.stream.batch import START_WATERMARK
from anabranch.window.aggregate import BLOCK, Emitted, WindowAggregate
from anabranch.window.aggregate_calls import CallPlan
from anabranch.window.aggregate_pending import Ready
from anabranch.window.panes import Grid

WINDOW_START, WINDOW_END = "window_start", "window_end"
_TS, _BORN = "_result_ts", "_result_born"
"""Of a result, apart from a key that is called as a tuple's are."""


class AggregateBody:
    """`operators` are an Aggregate and what is behind it: HAVING and a projection.

    Raises ConfigError for what cannot be evaluated.
    """

    def __init__(
        self,
        spark: SparkSession,
        alias: str,
        input_columns: pa.Schema,
        operators: Sequence[Operator],
        output_columns: pa.Schema,
        block: int = BLOCK,
    ) -> None:
        aggregate, *behind = operators
        assert isinstance(aggregate, Aggregate)
        self._spark = spark
        self._input = wire_schema(input_columns)
        self._output = wire_schema(output_columns)
        self._behind = behind
        self._panes = aggregate.panes
        keys = arrow_schema(Column(name=key.name, type=key.type) for key in aggregate.keys)
        calls = arrow_schema(Column(name=call.name, type=call.type) for call in aggregate.calls)
        self._columns = [*keys, *calls]
        by_position = isinstance(self._panes, RowPanes)
        custom = {
            call.name: load_custom(call, field.type)
            for call, field in zip(aggregate.calls, calls, strict=True)
            if call.source
        }
        plan = CallPlan(aggregate.calls, calls.types, custom, latest=by_position)
        self._lift = SparkLift(spark, aggregate.keys, plan)
        grid = _grid(self._panes)
        self._new_windows = partial(
            WindowAggregate, grid, by_position, plan, keys, self._lift, block
        )
        self._windows = self._new_windows()

    def open(self, instant: int = START_WATERMARK) -> None:
        self._windows.open(instant)
        self.warm_up()

    def warm_up(self) -> bool:
        one = np.zeros(1, np.int64)
        times = {EVENT_TIME: 0, BORN: 0}
        nulls = pa.Table.from_pylist([times], self._input)
        # An expression may refuse NULLs; the stream may have none.
        with suppress(PySparkException, AnabranchError):
            self._lift(Ready(nulls, one, one, range(1), 1))
            return True
        return False

    def reopen(self, instant: int) -> None:
        self._windows = self._new_windows()
        self._windows.open(instant)

    def step(self, inputs: Sequence[Taken]) -> Produced:
        (taken,) = inputs
        table = taken.table(self._input)
        first = taken.last - len(table) + 1
        taken.forget()
        ts = table.column(EVENT_TIME).to_numpy()
        emitted = self._windows.step(table, first, ts, taken.last, taken.watermark)
        del table
        rows = self._finish(emitted)
        return Produced(rows, emitted.watermark, (emitted.needless,), emitted.instant)

    def _finish(self, emitted: Emitted) -> pa.Table:
        """The operators behind the aggregate; without Spark if they only pick columns."""
        if not len(emitted.ts):
            return self._output.empty_table()
        table = self._table(emitted)
        for number, operator in enumerate(self._behind):
            if isinstance(operator, Projection) and (picked := _picked(operator, table)):
                table = picked
            else:
                return self._run(table, self._behind[number:])
        return self._as_output(table)

    def _table(self, emitted: Emitted) -> pa.Table:
        if isinstance(self._panes, TimePanes):
            bounds = pa.timestamp("us", "UTC")
            starts, ends = emitted.starts, emitted.ends
        else:  # the positions of the first and the last tuple, which count from 1
            bounds = pa.int64()
            starts, ends = emitted.starts + 1, emitted.ends
        names = [field.name for field in self._columns]
        return pa.table(
            [
                *emitted.columns,
                pa.array(starts).cast(bounds),
                pa.array(ends).cast(bounds),
                pa.array(emitted.ts),
                pa.array(emitted.born),
            ],
            names=[*names, WINDOW_START, WINDOW_END, _TS, _BORN],
        )

    def _run(self, table: pa.Table, operators: Sequence[Operator]) -> pa.Table:
        with job_memory.job(table.nbytes):
            frame = self._spark.createDataFrame(table)
            del table
            for operator in operators:
                if isinstance(operator, Selection):
                    frame = frame.where(operator.condition.expr.sql(plain))
                elif isinstance(operator, Projection):
                    items = [f"{i.expr.sql(plain)} AS {quoted(i.name)}" for i in operator.items]
                    frame = frame.selectExpr(*items, _TS, _BORN)
            return self._as_output(frame.toArrow())

    def _as_output(self, table: pa.Table) -> pa.Table:
        return table.rename_columns(self._output.names).cast(self._output)

    def close(self) -> None:
        """Nothing is held outside."""


def _grid(panes: TimePanes | RowPanes) -> Grid:
    if isinstance(panes, TimePanes):
        return Grid(panes.width_us, panes.slide_us)
    return Grid(panes.width, panes.slide)


def _picked(projection: Projection, table: pa.Table) -> pa.Table | None:
    """What `projection` gives if it only takes columns and names them."""
    uses = [item.expr.column for item in projection.items]
    if any(use is None for use in uses):
        return None
    columns = [table.column(use.column) for use in uses if use is not None]
    names = [item.name for item in projection.items]
    times = [table.column(_TS), table.column(_BORN)]
    return pa.table([*columns, *times], names=[*names, _TS, _BORN])
