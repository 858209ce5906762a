"""Generates tuples at a steady rate, in real time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from fractions import Fraction
from functools import cached_property
from math import ceil
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql import functions

from anabranch.connectors.formats.columns import from_arrow, from_values
from anabranch.connectors.formats.table_builder import UNFIT, sql_type
from anabranch.connectors.options import COUNT, DURATION, NUMBER, Option, OptionKind, take
from anabranch.connectors.source import EVENT_TIME, Cursor, Source, SourceContext
from anabranch.errors import ConfigError
from anabranch.spark.failures import SPARK_ERRORS, cause
from anabranch.spark.inside import from_arrow_type
from anabranch.spark.kept.expressions import Evaluation, Expressions
from anabranch.stream.batch import START_WATERMARK

MAX_BLOCK = 100_000
"""Rows that one Spark job makes at most."""
PAUSE = 0.02
"""Seconds between two tables at high rates."""
_POLL = 0.1
_NUMBERS = pa.schema([("value", pa.int64()), ("ts", pa.int64())])


def _start(value: Any) -> int:
    try:
        return int(from_values([value], None)[0].as_py())
    except UNFIT:
        raise ValueError from None


class RateSource(Source):
    """Tuple i = 0, 1, 2, … is due i/tps seconds after the first, and its event time is
    `start` + i/tps, down to the µs. With `every`, all tuples of such an interval come at its end.

    Each column is a Spark SQL expression over `value` (i, BIGINT) and `ts` (event time in µs,
    BIGINT); columns named `value` and `ts` need none. An option named like a declared column is
    that column's expression. Expressions are evaluated block by block: `rand(7)` begins anew in
    each, so derive chance from `hash(value)`.
    """

    options: ClassVar[tuple[Option, ...]] = (
        Option("tps", NUMBER, "tuples per second"),
        Option("rate", NUMBER, "another name for tps"),
        Option("every", DURATION, "tuples of so long come together, at its end"),
        Option("rows", COUNT, "how many tuples there are; without it they never end"),
        Option(
            "start",
            OptionKind(
                "time", "µs since the epoch or a time such as '2026-01-31T12:00:00Z'", _start
            ),
            "event time of the first tuple; now if left out",
        ),
    )

    replayable = True
    columns_are_options = True
    own_time = True
    upcoming = START_WATERMARK
    """While the next tuple is not made yet, it is the event time of the one before it."""

    def __init__(self, context: SourceContext) -> None:
        self._context = context
        given = self._split_off_expressions()
        columns = [name for name in context.schema.names if name not in self._expressions]
        chosen = take("rate", self.options, given, others=columns)
        self._tps = _tps(chosen)
        self._every_s = Fraction(chosen["every"], 1_000_000) if chosen["every"] else None
        self._pause_s = PAUSE if self._every_s is None else 0.0
        self._rows: int | None = chosen["rows"]
        self._start: int | None = chosen["start"]
        self.finite = self._rows is not None
        for name in columns:
            self._expressions[name] = self._default(name)
        self._event_time = self._event_time_column()
        self._analyse()

    def start_cursor(self) -> Cursor:
        # The first job of a JVM takes seconds. Were it the first block, its tuples would come late
        # by that, all at once.
        self._make(0, 0, 1)
        now = round(time.time() * 1e6)
        return {"start": now if self._start is None else self._start, "begun": now, "next": 0}

    def read_from(self, cursor: Cursor) -> Iterator[tuple[pa.Table, Cursor]]:
        """Reads on from the cursor. Tuples that fell due since the cursor's time come at once."""
        begun = time.monotonic() - (time.time() - cursor["begun"] / 1e6)
        for first, block in self._blocks(cursor["start"], cursor["next"]):
            sent = max(cursor["next"] - first, 0)
            while sent < len(block) and not self._context.stopped.is_set():
                due = min(self._due(time.monotonic() - begun) - first, len(block))
                if due > sent:
                    yield block.slice(sent, due - sent), cursor | {"next": first + due}
                    sent = due
                self.upcoming = block.column(EVENT_TIME)[min(sent, len(block) - 1)].as_py()
                if sent < len(block):
                    wait = begun + self._due_s(first + sent) - time.monotonic()
                    self._context.stopped.wait(max(float(wait), self._pause_s))

    def _due(self, elapsed_s: float) -> int:
        """The number of tuples that are due when this time has passed since the first."""
        if self._every_s is None:
            return int(elapsed_s * self._tps) + 1
        return int(int(elapsed_s // self._every_s) * self._every_s * self._tps)

    def _due_s(self, number: int) -> Fraction:
        """The time at which the tuple of this number is due."""
        due = number / self._tps
        return due if self._every_s is None else (due // self._every_s + 1) * self._every_s

    def reread(self, begin: Cursor, end: Cursor) -> pa.Table:
        """Computes the blocks again that the rows were in, since an expression may depend on its
        block.
        """
        first = self._block_start(begin["next"])
        blocks = [
            self._make(end["start"], start, self._size(start))
            for start in range(first, end["next"], self._block_rows)
        ]
        rows = end["next"] - begin["next"]
        return pa.concat_tables(blocks).slice(begin["next"] - first, rows).combine_chunks()

    def _blocks(self, start: int, following: int) -> Iterator[tuple[int, pa.Table]]:
        """Blocks of about a second's tuples, each with the number of its first tuple, starting with
        the block of tuple `following`; the next one is computed while one is used.
        """
        pool = ThreadPoolExecutor(1, thread_name_prefix=f"rate-{self._context.stream}")
        try:
            first = self._block_start(following)
            ahead = self._submit(pool, start, first)
            while ahead is not None:
                block = self._await(ahead)
                if block is None:
                    return
                following = first + len(block)
                ahead = self._submit(pool, start, following)
                yield first, block
                first = following
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            self._evaluations.close()

    @property
    def _block_rows(self) -> int:
        return min(max(ceil(self._tps), 1), MAX_BLOCK)

    def _block_start(self, number: int) -> int:
        return number - number % self._block_rows

    def _size(self, first: int) -> int:
        """The size of the block that begins with tuple `first`; 0 or less after the last block."""
        return self._block_rows if self._rows is None else min(self._block_rows, self._rows - first)

    def _submit(self, pool: ThreadPoolExecutor, start: int, first: int) -> Future[Any] | None:
        size = self._size(first)
        return pool.submit(self._make, start, first, size) if size > 0 else None

    def _await(self, block: Future[Any]) -> pa.Table | None:
        """The block once it is computed; None once stopped."""
        while not self._context.stopped.is_set():
            try:
                return block.result(_POLL)
            except NotYet:
                continue
        return None

    def _make(self, start: int, first: int, size: int) -> pa.Table:
        """Computes the tuples `first` … `first + size - 1`."""
        try:
            table = self._evaluate(self._numbers(start, first, first + size))
        except SPARK_ERRORS as error:
            raise ConfigError(f"rate() cannot make its tuples: {cause(error)}") from error
        types = [*self._context.schema.types, pa.int64()]
        arrays = [from_arrow(table.column(i), type) for i, type in enumerate(types)]
        return pa.Table.from_arrays(
            arrays, schema=self._context.schema.append(pa.field(EVENT_TIME, pa.int64()))
        )

    @cached_property
    def _evaluate(self) -> Evaluation:
        columns = [*map(self._column, self._context.schema), self._time()]
        return self._evaluations.evaluation(_NUMBERS, lambda frame: frame.select(*columns))

    @cached_property
    def _evaluations(self) -> Expressions:
        context = self._context
        return Expressions(context.spark(), context.plans, in_slot=context.in_slot)

    def _numbers(self, start: int, first: int, end: int) -> pa.Table:
        # In whole numbers, so that the same tuple has the same event time wherever it is computed.
        # As data: numbers in the plan would have Spark compile every block's code anew.
        step = 1_000_000 / self._tps
        values = range(first, end)
        times = [start + value * step.numerator // step.denominator for value in values]
        return pa.table([pa.array(values, pa.int64()), pa.array(times, pa.int64())], _NUMBERS)

    def _column(self, field: pa.Field) -> Any:
        column = functions.expr(self._expressions[field.name])
        return column.cast(from_arrow_type(field.type)).alias(field.name)

    def _time(self) -> Any:
        if self._event_time == "ts":
            return functions.expr("ts").alias(EVENT_TIME)
        field = self._context.schema.field(self._event_time)
        if not pt.is_timestamp(field.type) and (unit := self._context.unit):
            factor = {"s": "* 1000000", "ms": "* 1000", "us": "", "ns": "div 1000"}[unit]
            text = f"cast(({self._expressions[field.name]}) AS bigint) {factor}"
            return functions.expr(text).cast("bigint").alias(EVENT_TIME)
        column = self._column(field)
        micros = functions.unix_micros(column) if pt.is_timestamp(field.type) else column
        return micros.cast("bigint").alias(EVENT_TIME)

    def _analyse(self) -> None:
        """Lets Spark check every expression and its type, without running anything."""
        numbers = self._context.spark().createDataFrame(_NUMBERS.empty_table())
        for field in self._context.schema:
            try:
                # Beside `value`, an aggregate is refused: there is one row per tuple.
                _ = numbers.select("value", self._column(field)).schema
            except SPARK_ERRORS as error:
                text = self._expressions[field.name]
                raise ConfigError(
                    f"rate() cannot make {field.name} {sql_type(field.type)} from {text}: "
                    f"{cause(error)}",
                    remedy="Use value and ts; text needs quotes of its own, as in \"'kitchen'\".",
                ) from error

    def _split_off_expressions(self) -> dict[str, Any]:
        spelt = {name.lower(): name for name in self._context.schema.names}
        given = dict(self._context.options)
        self._expressions = {
            spelt[name.lower()]: _sql(given.pop(name)) for name in [*given] if name.lower() in spelt
        }
        return given

    def _default(self, name: str) -> str:
        if name.lower() == "ts" and pt.is_timestamp(self._context.schema.field(name).type):
            return "timestamp_micros(ts)"
        if name.lower() in ("value", "ts"):
            return name.lower()
        raise ConfigError(
            f"rate() has no expression for the column {name}",
            remedy=f"Add {name} = '<Spark SQL over value and ts>'.",
        )

    def _event_time_column(self) -> str:
        """The declared column that TIMESTAMP names, else `ts`."""
        wanted = (self._context.timestamp or "ts").lower()
        for name in self._context.schema.names:
            if name.lower() == wanted and self._context.timestamp:
                return str(name)
        if wanted != "ts":
            raise ConfigError(
                f"rate() has no column {self._context.timestamp} to take event time from",
                remedy="Write TIMESTAMP ts or declare the column.",
            )
        return "ts"


def _tps(chosen: dict[str, Any]) -> Fraction:
    """The rate, exactly as written: 0.1 is one tenth."""
    tps = chosen["tps"] or chosen["rate"]
    if tps is None:
        raise ConfigError(
            "rate() needs the option 'tps'", remedy="Write rate(tps = …): tuples per second."
        )
    return Fraction(repr(tps))


def _sql(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
