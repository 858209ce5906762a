"""What becomes of the tables of a stream, one after the other: which rows are tuples of it, in
what time, and which are late.

What is decided depends on the order of event times alone, not on how they are cut into tables, but
for what a table comes with: the moment of its arrival and the watermark that the clock had moved.
Both are kept, so that the same is decided when it is read again.

Tables that came before are judged as they were then, so that the same tuples come of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.connectors.ahead import far_ahead, skips, too_far
from anabranch.errors import CannotResume
from anabranch.link.wire import EVENT_TIME
from anabranch.plan.catalog import StreamDef
from anabranch.site.sources.entries import JournalEntry, ReadingState
from anabranch.site.sources.reading_again import checksum
from anabranch.site.sources.shedder import Shedder
from anabranch.stream.batch import START_WATERMARK
from anabranch.stream.restart import END_WATERMARK
from anabranch.window import lateness

TOLERANCE_US = 50_000
"""The two clocks are read one after the other, and a wall clock is slewed: so much apart they
agree."""


class ArrivalClock:
    def __init__(
        self,
        wall_ns: Callable[[], int] = lambda: time.time_ns(),
        monotonic_ns: Callable[[], int] = lambda: time.monotonic_ns(),
    ) -> None:
        self._wall_ns = wall_ns
        self._monotonic_ns = monotonic_ns
        self._now_us = 0
        self._read_us = monotonic_ns() // 1000

    def begin_at(self, now_us: int) -> None:
        """Takes note that it has shown this time before."""
        self._now_us = max(self._now_us, now_us)

    def now_us(self) -> int:
        """The time, never less than before."""
        wall, read = self._wall_ns() // 1000, self._monotonic_ns() // 1000
        expected = self._now_us + read - self._read_us
        self._read_us = read
        if wall >= expected - TOLERANCE_US:
            self._now_us = max(self._now_us, wall)
        else:
            self._now_us = expected
        return self._now_us


@dataclass(frozen=True)
class Parts:
    """The parts of a sequence of rows: how many came together, when, and the clock's watermark
    then.
    """

    rows: Sequence[int]
    now_us: Sequence[int]
    floors: Sequence[int]


@dataclass(frozen=True)
class Judged:
    """The tuples in time, with `_ts` and `_born`; how many of each part they are; the newest event
    time of all; the watermark after them; how many were late.
    """

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
        """The watermark after the newest event time and after the clock has moved it to `floor`."""
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


class Intake:
    """Several threads must not use it at once."""

    def __init__(
        self,
        stream: StreamDef,
        schema: pa.Schema,
        shedder: Shedder | None,
        skip: Callable[[int], None],
        clock: ArrivalClock,
    ) -> None:
        """`skip` is called with the number of malformed rows that were left out."""
        self.newest = START_WATERMARK
        self.floor = START_WATERMARK
        """The watermark that the clock has moved."""
        self.late = 0
        self.clock = clock
        self._stream = stream
        self._shedder = shedder
        self._skip = skip
        self._judge = Judge(schema, stream.lateness_us)
        # Only a source's own event times may be wrong.
        self._ahead_us = stream.ahead_us if stream.timestamp else None

    def go_on(self, state: ReadingState, promised: int) -> None:
        """Goes on: what was read and promised before holds."""
        self.newest = state.newest
        self.floor = max(state.floor, promised)
        self.clock.begin_at(max(self.newest, self.floor))

    @property
    def watermark(self) -> int:
        return self._judge.watermark(self.newest, self.floor)

    # -- what has just come ----------------------------------------------------------------------

    def entered(
        self, table: pa.Table, before: ReadingState, cursor: Any, *, checked: bool
    ) -> tuple[JournalEntry, Judged]:
        """The journal's entry for a table, and its tuples."""
        now_us = self.clock.now_us()
        bounded = self._bounded(table, now_us)
        allowed = self._shedder.allowed(bounded, now_us) if self._shedder else None
        timely = self._shed(bounded, allowed)
        judged = self._judged(timely, Parts([len(timely)], [now_us], [self.floor]))
        after = ReadingState(
            cursor, before.next + sum(judged.counts), self.newest, self.floor, now_us
        )
        rows = checksum(table) if checked else 0
        return JournalEntry(before, after, len(table), rows, allowed), judged

    def _bounded(self, table: pa.Table, now_us: int) -> pa.Table:
        """The table without rows that are too far in the future, which are malformed."""
        far = self._far(table, now_us)
        if far is None:
            return table
        if not skips(self._stream.source):
            raise far_ahead(table, far, self._ahead_us or 0)
        self._skip(int(far.sum()))
        return table.filter(pa.array(~far))

    # -- what came before ------------------------------------------------------------------------

    def split(
        self, table: pa.Table, group: list[JournalEntry]
    ) -> Iterator[tuple[pa.Table, list[JournalEntry]]]:
        """The pieces that must be examined separately: tables with shed tuples, and those with
        tuples from the future.
        """
        if self._shedder is None and self._far(table, group[0].after.now_us) is None:
            yield table, group
            return
        start = 0
        for entry in group:
            part = table.slice(start, entry.rows)
            if (far := self._far(part, entry.after.now_us)) is not None:
                part = part.filter(pa.array(~far))
            yield self._shed(part, entry.allowed), [entry]
            start += entry.rows

    def again(self, table: pa.Table, entries: list[JournalEntry]) -> Judged:
        """The tuples of a table that is read again. Raises CannotResume if they differ from the
        first time.
        """
        self.newest = entries[0].before.newest
        rows = [len(table)] if len(entries) == 1 else [entry.rows for entry in entries]
        moments = [entry.after.now_us for entry in entries]
        judged = self._judged(table, Parts(rows, moments, [one.after.floor for one in entries]))
        for entry, count in zip(entries, judged.counts, strict=True):
            if count != entry.count:
                raise CannotResume(
                    f"what was read between {entry.before.cursor} and {entry.after.cursor} gave"
                    f" {entry.count} tuples, and now {count}",
                    remedy="Drop the stream and create it again.",
                )
        self.floor = entries[-1].after.floor
        return judged

    def _judged(self, table: pa.Table, parts: Parts) -> Judged:
        judged = self._judge.judged(table, parts, self.newest)
        self.newest = judged.newest
        self.late += judged.late
        return judged

    def _shed(self, table: pa.Table, allowed: int | None) -> pa.Table:
        if self._shedder is None or allowed is None:
            return table
        return self._shedder.kept(table, allowed)

    def _far(self, table: pa.Table, now_us: int) -> np.ndarray | None:
        return too_far(table, now_us, self._ahead_us)
