"""The inside of a task: what it does with newly taken tuples.

A body is called by one thread at a time, in input order. What it produces is a function of the
input sequences alone, however they are cut into calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from anabranch.link.wire import BORN, EVENT_TIME, POSITION, wire_schema
from anabranch.plan.expressions import Naming, plain, quoted
from anabranch.plan.operators import Operator, Projection, Selection
from anabranch.site.memory import job_memory
from anabranch.site.sinks.base import Sink, written
from anabranch.stream.batch import END_WATERMARK, START_WATERMARK, Batch


@dataclass(frozen=True)
class Taken:
    """What one instance takes from one input: tuples behind each other, and the watermark that
    holds behind them. `last` is the position of the last one (or of the last one before)."""

    batches: list[Batch[pa.RecordBatch]]
    last: int
    watermark: int

    @property
    def rows(self) -> int:
        return sum(batch.rows for batch in self.batches)

    @property
    def nbytes(self) -> int:
        return sum(batch.data.nbytes for batch in self.batches)

    def forget(self) -> None:
        """Let go of the tuples."""
        self.batches.clear()

    def table(self, schema: pa.Schema) -> pa.Table:
        return pa.Table.from_batches([batch.data for batch in self.batches], schema)


@dataclass(frozen=True)
class Produced:
    """Output tuples in order, the watermark behind them, and per input the position up to which
    nothing is needed any more to reproduce what follows.

    `instant`: when that is replayed, results with an event time up to here are old ones."""

    table: pa.Table
    watermark: int
    needless: tuple[int, ...]
    instant: int = START_WATERMARK


class Body(Protocol):
    def open(self, instant: int = START_WATERMARK) -> None:
        """Called once before the first step. Results with an event time up to `instant` have been
        given before: what leads to them only rebuilds the state."""

    def reopen(self, instant: int) -> None:
        """Forget all that was taken and begin again, as after `open`."""

    def warm_up(self) -> bool:
        """Have Spark plan and compile the query on a made-up tuple, so that real ones need not wait
        for that. Changes nothing; as often as one likes, between steps. False if it cannot be
        done: the time it took says nothing."""

    def step(self, inputs: Sequence[Taken]) -> Produced: ...

    def close(self) -> None:
        """Called at the end, whether or not it was opened. Idempotent."""


class SelectionBody:
    """Selection, projection and conversion of one stream: each tuple once, in position order."""

    def __init__(
        self,
        spark: SparkSession,
        operators: Sequence[Operator],
        input_columns: pa.Schema,
        output_columns: pa.Schema,
    ) -> None:
        self._spark = spark
        self._operators = operators
        self._input = wire_schema(input_columns)
        self._output = wire_schema(output_columns)
        self._picked = _picked(operators)

    def open(self, instant: int = START_WATERMARK) -> None:
        self.warm_up()

    def warm_up(self) -> bool:
        nulls = pa.RecordBatch.from_pylist([{}], self._input)
        with suppress(PySparkException):  # one that cannot take NULLs; its tuples may have none
            self._run(Taken([Batch("", 1, 0, 0, nulls)], last=1, watermark=0))
            return True
        return False

    def reopen(self, instant: int) -> None:
        """Nothing is remembered."""

    def step(self, inputs: Sequence[Taken]) -> Produced:
        (taken,) = inputs
        table = self._run(taken) if taken.rows else self._output.empty_table()
        return Produced(table, taken.watermark, (taken.last,))

    def _run(self, taken: Taken) -> pa.Table:
        if self._picked is not None:
            table = taken.table(self._input).select([*self._picked, EVENT_TIME, BORN])
            return table.rename_columns(self._output.names).cast(self._output)
        with job_memory.job(taken.nbytes):
            frame = self._spark.createDataFrame(taken.table(self._input))
            taken.forget()  # the JVM has the tuples now; ours need not wait for its result
            return apply(frame, self._operators, plain).toArrow().cast(self._output)

    def close(self) -> None:
        """Nothing is held."""


class SinkBody:
    """Hands tuples to a sink with their positions. Nothing written is needed again."""

    def __init__(self, sink: Sink, columns: pa.Schema) -> None:
        self._sink = sink
        self._written = 0
        self._input = wire_schema(columns)
        self._columns = columns.names

    def open(self, instant: int = START_WATERMARK) -> None:
        self._sink.open()
        self._written = written(self._sink) or 0

    def reopen(self, instant: int) -> None:
        """What is written is written; it is skipped by its positions."""

    def warm_up(self) -> bool:
        return False

    def step(self, inputs: Sequence[Taken]) -> Produced:
        (taken,) = inputs
        table = taken.table(self._input)
        if len(table):
            first = taken.batches[0].first
            known = min(len(table), max(0, self._written + 1 - first))
            table, first = table.slice(known), first + known
        if len(table):
            positions = pa.array(np.arange(first, first + len(table), dtype=np.int64))
            table_out = table.select([*self._columns, EVENT_TIME])
            at = len(self._columns)
            self._sink.write(table_out.add_column(at, pa.field(POSITION, pa.int64()), positions))
        if taken.watermark == END_WATERMARK:
            self._sink.close()
        return Produced(table, taken.watermark, (taken.last,))

    def close(self) -> None:
        self._sink.close()


def _picked(operators: Sequence[Operator]) -> list[str] | None:
    """The columns, if picking some is all there is to do: no work for Spark then."""
    if len(operators) != 1 or not isinstance(operators[0], Projection):
        return None
    uses = [item.expr.column for item in operators[0].items]
    return None if None in uses else [use.column for use in uses if use]


def apply(
    frame: DataFrame,
    operators: Sequence[Operator],
    naming: Naming,
    carried: Sequence[str] = (EVENT_TIME, BORN),
) -> DataFrame:
    """Selections and projections; the first projection's output goes by plain names. The columns
    `carried` pass as they are."""
    for operator in operators:
        if isinstance(operator, Selection):
            frame = frame.where(operator.condition.expr.sql(naming))
        elif isinstance(operator, Projection):
            items = [f"{one.expr.sql(naming)} AS {quoted(one.name)}" for one in operator.items]
            frame = frame.selectExpr(*items, *carried)
            naming = plain
        else:
            raise TypeError(f"{operator.kind} stands first or not at all")
    return frame


def ages_s(table: pa.Table, now_us: int, most: int = 32) -> np.ndarray:
    """How long ago each tuple's newest source tuple entered the system; of a sample of them."""
    sample = table.column(BORN).take(np.arange(0, len(table), max(1, len(table) // most)))
    return (now_us - sample.to_numpy()) / 1e6
