"""Which tuples of a source are in time, and the event times of those that bring none.

What is decided depends on the order of event times alone, not on how they are cut into tables, but
for what a table comes with: the moment of its arrival and the watermark that the clock had moved.
Both are kept, so that the same is decided when it is read again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from anabranch.link.wire import EVENT_TIME
from anabranch.stream.watermark import END_WATERMARK
from anabranch.window import lateness


@dataclass(frozen=True)
class Parts:
    """Of rows in a row: how many came together, when, and the clock's watermark then."""

    rows: Sequence[int]
    now_us: Sequence[int]
    floors: Sequence[int]


@dataclass(frozen=True)
class Judged:
    """The tuples in time, with `_ts` and `_born`; how many of each part they are; the newest event
    time of all; the watermark behind them; how many were late."""

    table: pa.Table
    counts: list[int]
    newest: int
    watermark: int
    late: int


class Judge:
    """`schema` is that of the tuples."""

    def __init__(self, schema: pa.Schema, lateness_us: int) -> None:
        self._schema = schema
        self._lateness_us = lateness_us

    def judged(self, table: pa.Table, parts: Parts, newest: int) -> Judged:
        """`newest` is the newest event time before the table."""
        count = len(table)
        now_us, floors = _each(parts.now_us, parts.rows), _each(parts.floors, parts.rows)
        given = EVENT_TIME in table.schema.names
        if given:
            times = table.column(EVENT_TIME).to_numpy()
        else:  # a clock that is set back makes no tuple late
            times = np.maximum.accumulate(np.maximum(np.maximum(now_us, floors), newest))
        timely = times >= floors
        if (late := lateness.late(times, newest, self._lateness_us)) is not None:
            timely &= ~late
        columns = [*table.columns, *([] if given else [pa.array(times)]), pa.array(now_us)]
        timed = pa.table(columns, schema=self._schema)
        in_time = int(np.count_nonzero(timely))
        newest = max(newest, int(times.max())) if count else newest
        return Judged(
            timed if in_time == count else timed.filter(pa.array(timely)),
            [in_time] if len(parts.rows) == 1 else _counts(timely, parts.rows),
            newest,
            self.watermark(newest, max(parts.floors)),
            count - in_time,
        )

    def watermark(self, newest: int, floor: int) -> int:
        """After the newest event time, and what the clock has moved it to."""
        return max(lateness.watermark(newest, self._lateness_us), min(floor, END_WATERMARK - 1))


def _each(values: Sequence[int], rows: Sequence[int]) -> np.ndarray:
    """The value of each row's part."""
    if len(values) == 1:
        return np.full(rows[0], values[0], dtype=np.int64)
    return np.repeat(np.asarray(values, dtype=np.int64), rows)


def _counts(timely: np.ndarray, rows: Sequence[int]) -> list[int]:
    before = np.concatenate(([0], np.cumsum(timely)))
    ends = np.cumsum(rows)
    counts: list[int] = (before[ends] - before[ends - np.asarray(rows)]).tolist()
    return counts
