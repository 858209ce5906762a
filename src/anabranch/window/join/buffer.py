"""Tuples of one input that some input's watermark has not passed yet, the instants at which they
are evaluated, and the steps of that.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from anabranch.stream.batch import START_WATERMARK
from anabranch.window.arrays import I64, concatenated


@dataclass(frozen=True)
class Closed:
    """Tuples in the order of (event time, position); nothing will ever come between them."""

    pos: I64
    ts: I64
    born: I64
    columns: list[pa.Array]

    def __len__(self) -> int:
        return len(self.pos)

    @property
    def nbytes(self) -> int:
        numbers = self.pos.nbytes + self.ts.nbytes + self.born.nbytes
        return int(numbers + sum(column.nbytes for column in self.columns))

    def take(self, rows: I64) -> Closed:
        columns = [column.take(pa.array(rows)) for column in self.columns]
        return Closed(self.pos[rows], self.ts[rows], self.born[rows], columns)

    def slice(self, first: int, stop: int) -> Closed:
        columns = [column.slice(first, stop - first) for column in self.columns]
        return Closed(self.pos[first:stop], self.ts[first:stop], self.born[first:stop], columns)


@dataclass
class _Chunk:
    """Tuples that came at once, in the order in which they close."""

    tuples: Closed
    lowest: I64
    """From each row on, the lowest position."""
    gone: int = 0

    def until(self, watermark: int) -> Closed:
        first, self.gone = self.gone, int(np.searchsorted(self.tuples.ts, watermark))
        return self.tuples.slice(first, self.gone)

    @property
    def empty(self) -> bool:
        return self.gone == len(self.tuples)


class Buffer:
    """Chunks by the event time of what they give next: closing costs only as much as is closed."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, _Chunk]] = []
        self._arrived: deque[_Chunk] = deque()

    def add(self, pos: I64, ts: I64, born: I64, columns: Sequence[pa.Array]) -> None:
        if not len(pos):
            return
        tuples = _ordered(Closed(pos, ts, born, list(columns)))
        chunk = _Chunk(tuples, np.minimum.accumulate(tuples.pos[::-1])[::-1])
        self._arrived.append(chunk)
        self._push(chunk)

    @property
    def nbytes(self) -> int:
        return sum(chunk.tuples.nbytes for chunk in self._arrived)

    def waiting(self) -> list[tuple[Closed, int]]:
        """The tuples that came together, and how many of each have been closed, in the order in
        which they came. They never change."""
        return [(chunk.tuples, chunk.gone) for chunk in self._arrived if not chunk.empty]

    def close(self, watermark: int) -> Closed | None:
        """Takes out the tuples with an event time below `watermark`."""
        parts: list[Closed] = []
        while self._heap and self._heap[0][0] < watermark:
            chunk = heapq.heappop(self._heap)[2]
            parts.append(chunk.until(watermark))
            if not chunk.empty:
                self._push(chunk)
        while self._arrived and self._arrived[0].empty:
            self._arrived.popleft()
        if len(parts) <= 1:
            return parts[0] if parts else None
        pos, ts, born = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("pos", "ts", "born")
        )
        return _ordered(Closed(pos, ts, born, concatenated([part.columns for part in parts])))

    @property
    def lowest(self) -> int | None:
        """The lowest position held. (Later chunks have higher positions.)"""
        if not self._arrived:
            return None
        chunk = self._arrived[0]
        return int(chunk.lowest[chunk.gone])

    def _push(self, chunk: _Chunk) -> None:
        tuples, row = chunk.tuples, chunk.gone
        heapq.heappush(self._heap, (int(tuples.ts[row]), int(tuples.pos[row]), chunk))


def _ordered(tuples: Closed) -> Closed:
    later = tuples.ts[1:] > tuples.ts[:-1]
    same = tuples.ts[1:] == tuples.ts[:-1]
    if bool(np.all(later | (same & (tuples.pos[1:] > tuples.pos[:-1])))):
        return tuples
    return tuples.take(np.lexsort((tuples.pos, tuples.ts)))


@dataclass(frozen=True)
class Instants:
    """Times, ascending, and when each one's trigger entered the system."""

    times: I64
    born: I64

    def __len__(self) -> int:
        return len(self.times)


def instants(masters: Sequence[Closed | None], after: int) -> Instants:
    """The instants of tuples that closed together, given in the order of MASTER; only those after
    `after`.
    """
    behind = [
        closed.slice(int(np.searchsorted(closed.ts, after, side="right")), len(closed))
        for closed in masters
        if closed is not None
    ]
    if not any(map(len, behind)):
        return Instants(np.empty(0, np.int64), np.empty(0, np.int64))
    ts = np.concatenate([closed.ts for closed in behind])
    born = np.concatenate([closed.born for closed in behind])
    # Each is in the order of (time, position): a stable sort puts the trigger first.
    order = np.argsort(ts, kind="stable")
    times, first = np.unique(ts[order], return_index=True)
    return Instants(times, born[order][first])


@dataclass(frozen=True)
class Arrival:
    """The tuples that one step takes from one input with their `_ts` and `_born`, their positions,
    the last position taken so far, and the watermark after them.
    """

    table: pa.Table
    positions: I64
    last: int
    watermark: int


@dataclass(frozen=True)
class Outcome:
    """`table`: results in order, with `_ts`, `_born`, and what a partial join adds; None if there
    are none. The rest is as in a body's `Produced`."""

    table: pa.Table | None
    watermark: int
    needless: tuple[int, ...]
    instant: int
    more: bool = False
    """A step without arrivals goes on where this one was cut."""


def at_start(arrivals: Sequence[Arrival], instant: int) -> Outcome:
    """The outcome before anything was evaluated."""
    before = [int(a.positions[0]) - 1 if len(a.positions) else a.last for a in arrivals]
    return Outcome(None, START_WATERMARK, tuple(before), instant)
