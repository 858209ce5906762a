"""The body of a task that merges streams: `window.union`, and a selection behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from anabranch.link.wire import wire_schema
from anabranch.site.tasks.body import Produced, SelectionBody, Taken
from anabranch.stream.batch import START_WATERMARK, Batch
from anabranch.window.union import UnionState


class UnionBody:
    """`behind` is what is done with the merged stream; all `count` inputs have `columns`."""

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

    def warm_up(self) -> bool:
        return self._behind.warm_up()

    def step(self, inputs: Sequence[Taken]) -> Produced:
        arrivals = [(one.table(self._schema), one.last, one.watermark) for one in inputs]
        for one in inputs:
            one.forget()
        merged = self._state.step(arrivals)
        batches = [Batch("", 1, 0, 0, piece) for piece in merged.table.to_batches()]
        produced = self._behind.step([Taken(batches, len(merged.table), merged.watermark)])
        return replace(produced, needless=merged.needless, instant=merged.instant)

    def close(self) -> None:
        self._behind.close()
