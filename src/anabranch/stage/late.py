"""The tuples that a stage left out because they were late, as a stream of their own.

They are found by reading the source a second time, in order within each partition: so this stream
costs nothing unless somebody reads it, and can be read again like any other. A tuple's event time
here is how far the source had come when it was met; its own event time is in a column.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from anabranch.connectors.source import Cursor, Source
from anabranch.link.wire import EVENT_TIME
from anabranch.plan.stage import Stage
from anabranch.stage.inputs import PartitionedInput
from anabranch.stage.offsets import OffsetRange
from anabranch.stage.work import input_of
from anabranch.stream.batch import START_WATERMARK
from anabranch.window import lateness

LOOK_S = 0.2


class LateTuples(Source):
    """A cursor holds, for each partition, the offset and the greatest event time before it, and the
    greatest event time of all.
    """

    replayable = True
    own_time = True
    historic = True

    def __init__(
        self, stage: Stage, source: pa.Schema, columns: pa.Schema, stopped: threading.Event
    ) -> None:
        """`source` are the columns that the source declares, `columns` those of this stream."""
        self._input: PartitionedInput = input_of(stage, source)
        self._lateness_us = stage.input.lateness_us
        self._schema = columns.append(pa.field(EVENT_TIME, pa.int64()))
        self._stopped = stopped
        self.finite = self._input.finite

    def start_cursor(self) -> Cursor:
        starts = self._input.starts()
        at = {name: [offset, START_WATERMARK] for name, offset in starts.items()}
        return {"at": at, "newest": START_WATERMARK}

    def read_from(self, cursor: Cursor) -> Iterator[tuple[pa.Table, Cursor]]:
        while not self._stopped.is_set():
            gaps = [
                OffsetRange(name, self._begin(cursor, name), end)
                for name, end in sorted(self._input.ends().items())
                if end > self._begin(cursor, name)
            ]
            for gap in gaps:
                table, cursor = self._taken(cursor, self._input.cut(gap))
                yield table, cursor
                if self._stopped.is_set():
                    return
            if not gaps:
                if self.finite:
                    return
                self._stopped.wait(LOOK_S)

    def reread(self, begin: Cursor, end: Cursor) -> pa.Table:
        (changed,) = (name for name, at in end["at"].items() if begin["at"].get(name) != at)
        range = OffsetRange(changed, self._begin(begin, changed), end["at"][changed][0])
        return self._taken(begin, range)[0]

    def _begin(self, cursor: Cursor, partition: str) -> int:
        begin: int = cursor["at"].get(partition, [0])[0]
        return begin

    def _taken(self, cursor: Cursor, range: OffsetRange) -> tuple[pa.Table, Cursor]:
        table = self._input.read(range)
        times = table.column(EVENT_TIME).to_numpy()
        before = cursor["at"].get(range.partition, [0, START_WATERMARK])[1]
        reached = np.maximum.accumulate(np.concatenate(([cursor["newest"]], times)))
        newest = max(before, int(times.max()) if len(times) else before)
        at = {**cursor["at"], range.partition: [range.end, newest]}
        behind: dict[str, object] = {"at": at, "newest": int(reached[-1])}
        late = lateness.late(times, before, self._lateness_us)
        if late is None:
            return self._schema.empty_table(), behind
        kept = table.drop_columns(EVENT_TIME).filter(pa.array(late))
        arrays = [*kept.columns, pa.array(times[late]), pa.array(reached[:-1][late])]
        return pa.Table.from_arrays(
            [one.cast(field.type) for one, field in zip(arrays, self._schema, strict=True)],
            schema=self._schema,
        ), behind
