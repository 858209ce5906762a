"""Several streams with the same columns as one, ordered by (event time, stream, position).

What comes out is a function of the streams alone: tuples wait until no stream can bring one that
belongs before them, that is, until the least of all watermarks has passed their event time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from anabranch.snapshot.state import KeptPieces, State
from anabranch.stream.batch import END_WATERMARK, EVENT_TIME, START_WATERMARK
from anabranch.window.panes import Ints
from anabranch.window.pieces import tuples_of, tuples_piece


@dataclass(frozen=True)
class MergedTuples:
    """The tuples that may go, in order. Replaying the streams after `needless` gives what follows,
    once tuples with an event time up to `instant` are left out.
    """

    table: pa.Table
    watermark: int
    needless: tuple[int, ...]
    instant: int


@dataclass
class _Waiting:
    """Tuples of one stream that may not go yet, in the order of their positions; `last` is the
    position of the newest.
    """

    table: pa.Table
    positions: Ints
    last: int = 0
    watermark: int = START_WATERMARK

    @property
    def needless(self) -> int:
        return int(self.positions[0]) - 1 if len(self.positions) else self.last


class UnionState:
    """`schema` is that of all streams, with the event time."""

    def __init__(self, schema: pa.Schema, count: int) -> None:
        none = np.zeros(0, np.int64)
        self._schema = schema
        self._streams = [_Waiting(schema.empty_table(), none) for _ in range(count)]
        self._instant = START_WATERMARK

    def open(self, instant: int) -> None:
        """Begins after a restart: tuples with an event time up to `instant` have gone before."""
        self._instant = instant

    @property
    def nbytes(self) -> int:
        return sum(one.table.nbytes + one.positions.nbytes for one in self._streams)

    def snapshot(self) -> State:
        """What waits, and how far each stream has come."""
        notes = [[one.last, one.watermark] for one in self._streams]
        pieces = [tuples_piece(one.table, one.positions) for one in self._streams]
        return State({"streams": notes}, pieces)

    def restore(self, kept: KeptPieces) -> None:
        """Restores a state. Call it after `open`, and before the first step."""
        for waiting, (last, watermark), piece in zip(
            self._streams, kept.notes["streams"], kept.pieces, strict=True
        ):
            table, positions = tuples_of(piece)
            self._add(waiting, table, positions, last, watermark)

    def step(self, arrivals: Sequence[tuple[pa.Table, int, int]]) -> MergedTuples:
        """Takes for each stream its new tuples, the position of the last of them, and its
        watermark.
        """
        for waiting, (table, last, watermark) in zip(self._streams, arrivals, strict=True):
            positions = np.arange(last - len(table) + 1, last + 1, dtype=np.int64)
            self._add(waiting, table, positions, last, watermark)
        watermark = min(one.watermark for one in self._streams)
        parts = [self._take(one, watermark) for one in self._streams]
        table = pa.concat_tables(parts)
        order = np.argsort(table.column(EVENT_TIME).to_numpy(), kind="stable")
        if START_WATERMARK < watermark < END_WATERMARK:
            self._instant = max(self._instant, watermark - 1)
        elif watermark == END_WATERMARK:
            self._instant = END_WATERMARK
        needless = tuple(one.needless for one in self._streams)
        return MergedTuples(table.take(pa.array(order)), watermark, needless, self._instant)

    def _add(
        self, waiting: _Waiting, table: pa.Table, positions: Ints, last: int, watermark: int
    ) -> None:
        fresh = table.column(EVENT_TIME).to_numpy() > self._instant
        if not fresh.all():
            table, positions = table.filter(pa.array(fresh)), positions[fresh]
        if len(table):
            waiting.table = pa.concat_tables([waiting.table, table.cast(self._schema)])
            waiting.positions = np.concatenate([waiting.positions, positions])
        waiting.last, waiting.watermark = last, max(waiting.watermark, watermark)

    def _take(self, waiting: _Waiting, watermark: int) -> pa.Table:
        """Takes tuples out of `waiting`, ordered by event time, and by position where that is the
        same.
        """
        times = waiting.table.column(EVENT_TIME).to_numpy()
        ready = times < watermark if watermark < END_WATERMARK else np.ones(len(times), bool)
        taken = waiting.table.filter(pa.array(ready))
        waiting.table = waiting.table.filter(pa.array(~ready)).combine_chunks()
        waiting.positions = waiting.positions[~ready]
        return taken
