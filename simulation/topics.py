"""What sources read from: records that come in time, can be read again, and are not always what
they were.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, ClassVar

import pyarrow as pa

from anabranch.connectors.source import Source
from anabranch.errors import CannotResume, SourceAway
from anabranch.link.wire import EVENT_TIME, wire_schema
from anabranch.stream.restart import END_WATERMARK, START_WATERMARK
from simulation.clock import Process
from simulation.plan import SourceSpec
from simulation.rows import Row, Rows

VALUE = pa.schema([pa.field("value", pa.int64())])
WIRE = wire_schema(VALUE)
MS = 1000
"""Event times of a simulation are milliseconds, those of the product microseconds."""
PIECES = (1, 3, 20)
"""Records that a source gives at once, at most."""


class Topic:
    """Outlives all processes. `due` and rows are those of the plan; offset i is row i."""

    def __init__(self, spec: SourceSpec) -> None:
        self.spec = spec
        self.away = False
        self._records: list[Row | None] = list(spec.rows)
        """None: compacted away."""
        self._begin = 0
        """What lay before has been deleted."""
        self.changed = False
        """Records that were read are not what they were."""

    def compact(self, rng: Random, given: int) -> None:
        """Some of the first `given` records go, as if later records had the same keys."""
        gone = [at for at in range(self._begin, given) if rng.random() < 0.3]
        for at in gone:
            self._records[at] = None
        self.changed = self.changed or bool(gone)

    def edit(self, rng: Random, given: int) -> None:
        """One of those that were read has another value."""
        at = rng.randrange(given) if given else -1
        if at >= 0 and (record := self._records[at]):
            self._records[at] = record[0], record[1] + 1
            self.changed = True

    def retain(self, rng: Random, given: int) -> None:
        """The oldest of what was read are deleted."""
        self._begin = max(self._begin, rng.randint(0, given))
        self.changed = self.changed or self._begin > 0

    def read(self, begin: int, end: int) -> list[Row]:
        if self.away:
            raise SourceAway("no broker answers", place=self.spec.name)
        if begin < self._begin:
            raise CannotResume(
                f"records from offset {begin} on are gone; the first is {self._begin}",
                place=self.spec.name,
            )
        return [one for one in self._records[begin:end] if one]


class TopicSource(Source):
    """As a process reads it: what is due, in pieces of any size. Cursors are offsets."""

    replayable: ClassVar[bool] = True
    finite = True

    def __init__(self, topic: Topic, process: Process, rng: Random) -> None:
        self._topic = topic
        self._process = process
        self._rng = rng
        self._at = 0

    @property
    def upcoming(self) -> int | None:  # type: ignore[override]
        """The least event time of what has not been read."""
        left = self._topic.spec.rows[self._at :]
        return min((ts for ts, _ in left), default=END_WATERMARK // MS) * MS

    @property
    def wait_s(self) -> float:
        """So long nothing comes."""
        due = self._topic.spec.due[self._at : self._at + 1]
        return max(0, *due, 0) / MS - self._process.clock.now / MS if due else 0.0

    def start_cursor(self) -> int:
        return 0

    def read_from(self, cursor: int) -> Iterator[tuple[pa.Table, int]]:
        self._at, spec = cursor, self._topic.spec
        while self._at < len(spec.rows):
            end, most = self._at + 1, self._rng.choice(PIECES)
            while end < len(spec.rows) and end - self._at < most and spec.due[end] <= self._now:
                end += 1
            table = self._table(self._topic.read(self._at, end))
            self._at = end
            yield table, end

    @property
    def _now(self) -> int:
        return self._process.clock.now

    def reread(self, begin: int, end: int) -> pa.Table:
        return self._table(self._topic.read(begin, end))

    def _table(self, rows: list[Row]) -> pa.Table:
        columns = {"value": pa.array([value for _, value in rows], pa.int64())}
        if not self._topic.spec.arrival:
            columns[EVENT_TIME] = pa.array([ts * MS for ts, _ in rows], pa.int64())
        return pa.table(columns)


def rows_of(batch: pa.RecordBatch) -> Rows:
    times, values = batch.column(EVENT_TIME).to_pylist(), batch.column("value").to_pylist()
    return Rows(tuple((ts // MS, value) for ts, value in zip(times, values, strict=True)))


def in_ms(watermark: int) -> int:
    if watermark in (START_WATERMARK, END_WATERMARK):
        return watermark
    return watermark // MS


def arrow(rows: tuple[Row, ...]) -> Any:
    """As they are on a link of the product's."""
    times = pa.array([ts * MS for ts, _ in rows], pa.int64())
    values = pa.array([value for _, value in rows], pa.int64())
    return pa.record_batch([values, times, times], schema=WIRE)
