"""Estimates what a task will cost, by a trial on generated tuples before it has run.

NULLs would be too cheap: most functions return NULL for them at once. So tuples are generated from
their types. A condition may let few or none of them through; later measurements are better.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Sequence
from decimal import Decimal
from statistics import median
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException

from anabranch.errors import AnabranchError
from anabranch.link.wire import BORN, EVENT_TIME
from anabranch.site.tasks.body import Body, Taken
from anabranch.site.tasks.measures import InstanceCost
from anabranch.stream.batch import Batch

WARM_S, PATIENCE_S = 0.1, 1.0
"""So long it is run at first, since a JVM is slow at what it does for the first time: while it gets
`QUICKER`, the second."""
QUICKER = 0.8
INSTANCE_S = 0.01
"""The larger ones of the instances that are compared take this long, if tuples allow."""
MOST_ROWS = 1024
ROUNDS = 5
STEP_US = 1000
"""Event time between tuples."""


InSlot = Callable[[Callable[[], float]], float | None]
"""Runs something beside which nothing else uses Spark; None if that cannot be."""


class Unknown(Exception):
    """There is no time for a trial."""


def calibrated(
    body: Body,
    schemas: Sequence[pa.Schema],
    in_slot: InSlot,
    now: Callable[[], float] = time.perf_counter,
) -> InstanceCost | None:
    """The cost of a new `body`, which is opened and used up by the trial. `schemas` are those of
    its inputs on the wire. None if no generated tuple can be processed.
    """
    trial = _Trial(body, schemas, in_slot, now)
    try:
        body.open()
        return _cost(trial)
    except (PySparkException, AnabranchError, ArithmeticError, ValueError, Unknown):
        return None
    finally:
        body.close()


def _cost(trial: _Trial) -> InstanceCost:
    took = _warmed(trial)
    rows = 1
    while took < INSTANCE_S and rows < MOST_ROWS:
        rows *= 4
        took = trial.run(rows)
    rows = max(rows, 4)
    rounds = ROUNDS if took < WARM_S else 2
    single, many = zip(*((trial.run(1), trial.run(rows)) for _ in range(rounds)), strict=True)
    each = max(0.0, (median(many) - median(single)) / (rows - 1))
    return InstanceCost(max(0.0, median(single) - each), each)


def _warmed(trial: _Trial) -> float:
    """The seconds of an instance of one tuple once it has become no quicker for a while."""
    started, quickest = trial.now(), float("inf")
    while True:
        took = trial.run(1)
        quicker, quickest = took < QUICKER * quickest, min(took, quickest)
        spent = trial.now() - started
        if spent > PATIENCE_S or (spent > WARM_S and not quicker):
            return quickest


class _Trial:
    """Instances on tuples that follow each other."""

    def __init__(
        self,
        body: Body,
        schemas: Sequence[pa.Schema],
        in_slot: InSlot,
        now: Callable[[], float],
    ) -> None:
        self._body = body
        self._in_slot = in_slot
        self.now = now
        self._schemas = schemas
        self._last = 0

    def run(self, rows: int) -> float:
        """The seconds of an instance with this many tuples of every input."""
        first, self._last = self._last + 1, self._last + rows
        taken = [
            Taken([Batch("", first, 0, 0, made_up(schema, first, rows))], self._last, self._time)
            for schema in self._schemas
        ]
        took = self._in_slot(lambda: self._step(taken))
        if took is None:
            raise Unknown
        return took

    def _step(self, taken: list[Taken]) -> float:
        started = self.now()
        while self._body.step(taken).more:
            taken = [Taken([], self._last, self._time) for _ in self._schemas]
        return self.now() - started

    @property
    def _time(self) -> int:
        return self._last * STEP_US


def made_up(schema: pa.Schema, first: int, rows: int) -> pa.RecordBatch:
    """Tuples `first`, `first` + 1 …, each value made from its tuple's number."""
    return pa.RecordBatch.from_arrays(
        [_column(field, first, rows) for field in schema], schema=schema
    )


def _column(field: pa.Field, first: int, rows: int) -> pa.Array:
    numbers = range(first, first + rows)
    if field.name in (EVENT_TIME, BORN):
        return pa.array([number * STEP_US for number in numbers], pa.int64())
    return pa.array([_value(field.type, number) for number in numbers], field.type)


def _value(type_: pa.DataType, number: int) -> Any:
    """A value of this type; NULL if we do not know how to make one."""
    small = number % 100 + 1
    if pa.types.is_struct(type_):
        return {field.name: _value(field.type, number) for field in type_}
    if pa.types.is_map(type_):
        return [(_value(type_.key_type, number), _value(type_.item_type, number))]
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return [_value(type_.value_type, number)]
    return next((make(small) for known, make in _MAKERS if known(type_)), None)


_DAY = datetime.date(2026, 1, 1)
_MAKERS = (
    (pa.types.is_boolean, lambda n: n % 2 == 0),
    (pa.types.is_integer, lambda n: n),
    (pa.types.is_floating, lambda n: n + 0.5),
    (pa.types.is_decimal, lambda n: Decimal(n % 10)),
    (pa.types.is_string, str),
    (pa.types.is_large_string, str),
    (pa.types.is_binary, lambda n: b"%d" % n),
    (pa.types.is_date, lambda n: _DAY + datetime.timedelta(days=n)),
    (pa.types.is_timestamp, lambda n: datetime.datetime(2026, 1, 1, minute=n % 60)),
)
