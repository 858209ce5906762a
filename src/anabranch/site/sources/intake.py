"""What becomes of the tables of a stream, one after the other: which rows are tuples of it, in what
time, and what the journal is to know of them.

Tables that came before are judged as they were then, so that the same tuples come of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.connectors.ahead import far_ahead, skips, too_far
from anabranch.errors import CannotResume
from anabranch.plan.catalog import StreamDef
from anabranch.site.sources.arrival import ArrivalClock
from anabranch.site.sources.checksum import checksum
from anabranch.site.sources.entries import Entry, State
from anabranch.site.sources.judge import Judge, Judged, Parts
from anabranch.site.sources.shedder import Shedder
from anabranch.stream.batch import START_WATERMARK


class Intake:
    """Not for several threads at once."""

    def __init__(
        self,
        stream: StreamDef,
        schema: pa.Schema,
        shedder: Shedder | None,
        skip: Callable[[int], None],
        clock: ArrivalClock,
    ) -> None:
        """`skip` is told how many malformed rows were left out."""
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

    def go_on(self, state: State, promised: int) -> None:
        """What was read and promised before holds."""
        self.newest = state.newest
        self.floor = max(state.floor, promised)
        self.clock.begin_at(max(self.newest, self.floor))

    @property
    def watermark(self) -> int:
        return self._judge.watermark(self.newest, self.floor)

    # -- what has just come ----------------------------------------------------------------------

    def entered(
        self, table: pa.Table, before: State, cursor: Any, *, checked: bool
    ) -> tuple[Entry, Judged]:
        """What the journal is to know of a table, and its tuples."""
        now_us = self.clock.now_us()
        bounded = self._bounded(table, now_us)
        allowed = self._shedder.allowed(bounded, now_us) if self._shedder else None
        timely = self._shed(bounded, allowed)
        judged = self._judged(timely, Parts([len(timely)], [now_us], [self.floor]))
        after = State(cursor, before.next + sum(judged.counts), self.newest, self.floor, now_us)
        rows = checksum(table) if checked else 0
        return Entry(before, after, len(table), rows, allowed), judged

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

    def split(self, table: pa.Table, group: list[Entry]) -> Iterator[tuple[pa.Table, list[Entry]]]:
        """One by one what has to be seen so: what was shed, and what came from the future."""
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

    def again(self, table: pa.Table, entries: list[Entry]) -> Judged:
        """Raises CannotResume if other tuples come of it than came."""
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
