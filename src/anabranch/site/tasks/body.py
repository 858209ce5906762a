"""The inside of a task: what it does with newly taken tuples. The plainest one merges streams,
and may select after that.

A body is called by one thread at a time, in input order. What it produces is a function of the
input sequences alone, however they are cut into calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from anabranch.errors import TaskError
from anabranch.link.reports import PocketReport
from anabranch.link.wire import BORN, EVENT_TIME, apart, record_batches, wire_schema
from anabranch.plan.expressions import Naming, plain, quoted
from anabranch.plan.operators import Operator, Projection, Selection
from anabranch.snapshot.state import KeptPieces, State
from anabranch.spark.kept.expressions import Expressions
from anabranch.stream.batch import START_WATERMARK, Batch
from anabranch.window.union import UnionState


@dataclass(frozen=True)
class Taken:
    """What one instance takes from one input: consecutive tuples, and the watermark that holds
    after them. `last` is the position of the last one (or of the last one before).
    """

    batches: list[Batch[pa.RecordBatch]]
    last: int
    watermark: int

    @property
    def rows(self) -> int:
        return sum(batch.rows for batch in self.batches)

    @property
    def nbytes(self) -> int:
        return sum(batch.nbytes for batch in self.batches)

    def forget(self) -> None:
        """Lets go of the tuples."""
        self.batches.clear()

    def table(self, schema: pa.Schema) -> pa.Table:
        return pa.Table.from_batches([batch.data for batch in self.batches], schema)


@dataclass(frozen=True)
class Produced:
    """Output tuples in order, the watermark after them, and for each input the position up to which
    nothing is needed any more to reproduce what follows.

    When that is replayed, results with an event time up to `instant` are old ones.
    """

    table: pa.Table
    watermark: int
    needless: tuple[int, ...]
    instant: int = START_WATERMARK
    restartable: bool = field(default=True, kw_only=True)
    """What follows can be reproduced from here; if not, only from where it could before."""
    more: bool = field(default=False, kw_only=True)
    """The step was cut so that others get their turn: it goes on with the next one, which is to be
    given nothing new."""

    @property
    def rows(self) -> int:
        return len(self.table)

    def pieces(self, max_rows: int) -> list[pa.RecordBatch]:
        """The tuples in order, none of the pieces larger."""
        return list(record_batches(self.table, max_rows))

    def born(self) -> np.ndarray:
        """The time when the newest source tuple of each entered the system, in µs."""
        values: np.ndarray = self.table.column(BORN).to_numpy()
        return values

    def ages_s(self, now_us: int) -> np.ndarray:
        return ages_s(self.table, now_us)


@runtime_checkable
class Interruptible(Protocol):
    """A body whose steps may take long."""

    def interrupt(self) -> None:
        """Called from another thread: the running step ends soon, by an error."""

    def abandon(self) -> None:
        """Called from another thread, without waiting for anything: the step did not end after
        `interrupt`, so it must end now.
        """


@runtime_checkable
class Snapshotting(Protocol):
    """A body whose state can be kept, so that nobody need give it again what led to it."""

    @property
    def state_bytes(self) -> int:
        """About what it takes in memory."""

    def reopen(self, instant: int) -> None:
        """Reopens, as any body does."""

    def snapshot(self) -> State:
        """Between steps, of which the last was not cut short. Takes no longer than a step: what is
        large in it is made into bytes later, when the body may have gone on."""

    def restore(self, kept: KeptPieces) -> None:
        """Called after `open` or `reopen`, whose `instant` may be later than that of the snapshot:
        results up to there are not given again. What follows is the same to the bit."""


@runtime_checkable
class Remembering(Protocol):
    """A body with a state that does not follow from the input that is replayed to it."""

    lost: TaskError | None
    """Why it cannot go on, known after `open`: its state is gone."""

    def begin_after(self, position: int) -> None:
        """Called before `open`: its input goes on after this position."""


@runtime_checkable
class Reporting(Protocol):
    """A body that has more to report than what is measured of every task."""

    def report(self) -> PocketReport: ...


class Body(Protocol):
    def open(self, instant: int = START_WATERMARK) -> None:
        """Called once before the first step. Results with an event time up to `instant` have been
        given before: what leads to them only rebuilds the state.
        """

    def reopen(self, instant: int) -> None:
        """Forgets all that was taken and begins again, as after `open`."""

    def warm_up(self) -> bool:
        """Makes Spark plan and compile the query on a generated tuple, so that real ones need not
        wait for that. Changes nothing; it may be called any number of times, between steps. False
        if it is impossible: then the time it took says nothing.
        """

    def step(self, inputs: Sequence[Taken]) -> Produced: ...

    def close(self) -> None:
        """Called at the end, whether or not it was opened. Calling it again does no harm."""


class SelectionBody:
    """Selection, projection and conversion of one stream: each tuple once, in position order."""

    def __init__(
        self,
        expressions: Expressions,
        operators: Sequence[Operator],
        input_columns: pa.Schema,
        output_columns: pa.Schema,
    ) -> None:
        self._expressions = expressions
        self._input = wire_schema(input_columns)
        self._output = wire_schema(output_columns)
        self._picked = _picked(operators)
        build = partial(apply, operators=operators, naming=plain)
        self._evaluate = (
            None if self._picked is not None else expressions.evaluation(self._input, build)
        )

    def open(self, instant: int = START_WATERMARK) -> None:
        self.warm_up()

    def warm_up(self) -> bool:
        nulls = pa.RecordBatch.from_pylist([{}], self._input)
        with suppress(PySparkException):  # one that cannot take NULLs; its tuples may have none
            self._run(Taken([Batch("", 1, 0, 0, nulls)], last=1, watermark=0))
            return True
        return False

    def reopen(self, instant: int) -> None:
        """Does nothing: nothing is remembered."""

    def step(self, inputs: Sequence[Taken]) -> Produced:
        (taken,) = inputs
        table = self._run(taken) if taken.rows else self._output.empty_table()
        return Produced(table, taken.watermark, (taken.last,))

    def _run(self, taken: Taken) -> pa.Table:
        if self._evaluate is None:
            whole = taken.table(self._input)
            table = apart(whole.select([*(self._picked or ()), EVENT_TIME, BORN]), whole.nbytes)
            return as_schema(table.rename_columns(self._output.names), self._output)
        return as_schema(self._evaluate(taken.table(self._input), taken.forget), self._output)

    def interrupt(self) -> None:
        self._expressions.interrupt()

    def abandon(self) -> None:
        self._expressions.abandon()

    def close(self) -> None:
        self._expressions.close()


def _picked(operators: Sequence[Operator]) -> list[str] | None:
    """The columns, if the operators only pick some: then there is no work for Spark."""
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
    """The frame after selections and projections; the first projection's output goes by plain
    names. The columns `carried` pass unchanged.
    """
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


def as_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table in this schema. Casting takes long even where there is nothing to do."""
    return table if table.schema.equals(schema) else table.cast(schema)


def ages_s(table: pa.Table, now_us: int, most: int = 32) -> np.ndarray:
    """How long ago each tuple's newest source tuple entered the system; a sample of the tuples if
    there are many.
    """
    sample = table.column(BORN).to_numpy()[:: max(1, len(table) // most)]
    values: np.ndarray = (now_us - sample) / 1e6
    return values


class UnionBody:
    """`behind` are the operators on the merged stream; all `count` inputs have `columns`."""

    def __init__(self, behind: SelectionBody, columns: pa.Schema, count: int) -> None:
        self._behind = behind
        self._schema = wire_schema(columns)
        self._count = count
        self._state = UnionState(self._schema, count)

    def open(self, instant: int = START_WATERMARK) -> None:
        self._state.open(instant)
        self._behind.open(instant)

    def reopen(self, instant: int) -> None:
        self._state = UnionState(self._schema, self._count)
        self._state.open(instant)

    @property
    def state_bytes(self) -> int:
        return self._state.nbytes

    def snapshot(self) -> State:
        return self._state.snapshot()

    def restore(self, kept: KeptPieces) -> None:
        self._state.restore(kept)

    def warm_up(self) -> bool:
        return self._behind.warm_up()

    def step(self, inputs: Sequence[Taken]) -> Produced:
        arrivals = [(one.table(self._schema), one.last, one.watermark) for one in inputs]
        for input_ in inputs:
            input_.forget()
        merged = self._state.step(arrivals)
        batches = [Batch("", 1, 0, 0, piece) for piece in merged.table.to_batches()]
        produced = self._behind.step([Taken(batches, len(merged.table), merged.watermark)])
        return replace(produced, needless=merged.needless, instant=merged.instant)

    def close(self) -> None:
        self._behind.close()
