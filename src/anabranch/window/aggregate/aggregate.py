"""Window aggregates of one stream: what is kept, what comes out, and what a restart still needs.

Tuples are lifted to partial aggregates in sets that the input sequence alone defines: those of one
key, one pane and one block of absolute positions. A set is lifted as soon as its block is full or
its pane is closed. A pane is the merge of its blocks in order, a window that of its panes
(`aggregate_slide`). So not one bit of a result depends on how the input was cut into steps, or
where a replay began.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise
from typing import Protocol

import numpy as np
import pyarrow as pa

from anabranch.snapshot.state import KeptPieces, State
from anabranch.stream.batch import END_WATERMARK, START_WATERMARK
from anabranch.window.aggregate.calls import CallPlan
from anabranch.window.aggregate.keys import Keys, Seen
from anabranch.window.aggregate.pending import Pending, Ready
from anabranch.window.aggregate.pieces import (
    part_of,
    part_piece,
    seen_of,
    seen_piece,
)
from anabranch.window.aggregate.state import Columns, Part, Slide, fold, join
from anabranch.window.panes import Grid, Ints
from anabranch.window.pieces import tuples_of, tuples_piece

SEEN_BYTES = 300
"""About what a value takes that counts as one of several."""


class Distinct:
    """Only the last pane in which a value occurred counts. Ask for windows in order."""

    def __init__(self) -> None:
        self._panes: dict[int, set[Seen]] = {}
        self._uncounted: list[int] = []
        self._held: list[int] = []
        """Both are heaps of numbers of panes."""
        self._last: dict[Seen, int] = {}
        self._counts: dict[int, int] = {}
        self._listed: dict[int, list[Seen]] = {}
        """What `panes` gave of a pane, as long as nothing has been added to it."""

    def add(self, pane: int, key: int, value: Hashable) -> None:
        if pane not in self._panes:
            self._panes[pane] = set()
            heappush(self._uncounted, pane)
            heappush(self._held, pane)
        self._panes[pane].add((key, value))

    def __len__(self) -> int:
        return sum(map(len, self._panes.values()))

    def panes(self) -> dict[int, list[Seen]]:
        """What occurred in each pane that a window to come may need; the same list again, as long
        as that has not changed."""
        for number, seen in self._panes.items():
            if len(self._listed.get(number, ())) != len(seen):
                self._listed[number] = list(seen)
        return {number: self._listed[number] for number in self._panes}

    def window(self, first: int, end: int, keys: Ints) -> Ints:
        """How many values each of `keys` has in the panes from `first` up to before `end`."""
        self.drop(first)
        while self._uncounted and self._uncounted[0] < end:
            pane = heappop(self._uncounted)
            for value in self._panes.get(pane, ()):
                if value not in self._last:
                    self._counts[value[0]] = self._counts.get(value[0], 0) + 1
                self._last[value] = pane
        return np.array([self._counts.get(key, 0) for key in keys.tolist()], np.int64)

    def drop(self, before: int) -> None:
        """Notes that no window begins before pane `before` any more."""
        while self._held and self._held[0] < before:
            pane = heappop(self._held)
            self._listed.pop(pane, None)
            for value in self._panes.pop(pane):
                if self._last.get(value) == pane:
                    del self._last[value]
                    self._counts[value[0]] -= 1
                    if not self._counts[value[0]]:
                        del self._counts[value[0]]


BLOCK = 65_536
"""Positions that are lifted together."""
_NEVER = 2**80


@dataclass(frozen=True)
class Lifted:
    """Partial aggregates: one row per group of `Ready.groups` and key."""

    groups: Ints
    keys: Sequence[pa.ChunkedArray]
    columns: Columns
    distinct: Sequence[tuple[Ints, Sequence[pa.ChunkedArray], Sequence[Hashable]]] = ()
    """Per COUNT(DISTINCT …): groups, keys and values that occur together."""


class Lifter(Protocol):
    def __call__(self, ready: Ready) -> Lifted: ...


@dataclass(frozen=True)
class Emitted:
    """Result rows in order; the other fields are as in `site.tasks.body.Produced`.

    `columns` are the keys, then the calls; `starts` and `ends` bound the rows' windows on the axis.
    """

    columns: list[pa.ChunkedArray]
    starts: Ints
    ends: Ints
    ts: Ints
    born: Ints
    watermark: int
    needless: int
    instant: int


@dataclass
class Pane:
    """The blocks lifted so far, in order, from position `first` on. If the first part is the merge
    of several blocks, `folded` is its number of keys.
    """

    parts: list[Part]
    first: int
    folded: int = 0


Window = tuple[int, Part, list[Ints]]
"""Its number, its partial aggregates, and its counts of distinct values."""


class WindowAggregate:
    """If `by_position`, the grid is one of positions, counted from 0, not of event time."""

    def __init__(
        self,
        grid: Grid,
        by_position: bool,
        plan: CallPlan,
        keys: pa.Schema,
        lift: Lifter,
        block: int = BLOCK,
    ) -> None:
        self._grid = grid
        self._by_position = by_position
        self._plan = plan
        self._layout = plan.layout
        self._lift = lift
        self._keys = Keys(keys)
        self._pending = Pending(grid, block, by_position)
        self._panes: dict[int, Pane] = {}
        self._slide = Slide(plan.layout, grid.span)
        self._distinct = [Distinct() for _ in plan.distinct]
        self._instant = START_WATERMARK
        self._not_before = grid.open_at(START_WATERMARK)
        self._next: int | None = None if by_position else self._not_before
        """The first window still to come. Those before it are out, or began before us."""

    def open(self, instant: int) -> None:
        """Windows that end at or before `instant` have come out before."""
        self._instant = instant
        self._not_before = self._grid.open_at(instant)
        if not self._by_position:
            self._next = self._not_before

    @property
    def nbytes(self) -> int:
        """About what it takes in memory."""
        parts = sum(part.nbytes for pane in self._panes.values() for part in pane.parts)
        seen = SEEN_BYTES * sum(map(len, self._distinct))
        waiting = self._pending.tuples()
        own = self._keys.nbytes + self._slide.nbytes + (waiting[0].nbytes if waiting else 0)
        return parts + seen + own

    def snapshot(self) -> State:
        """What closed panes hold and blocks that were lifted stays as it is, so that it is the same
        piece in the next snapshot."""
        panes = [
            [number, one.first, one.folded, len(one.parts)] for number, one in self._panes.items()
        ]
        pieces = [
            part_piece(part, self._keys, self._layout)
            for one in self._panes.values()
            for part in one.parts
        ]
        seen = [one.panes() for one in self._distinct]
        for value in seen:
            pieces += [seen_piece(of, of, self._keys) for of in value.values()]
        if waiting := self._pending.tuples():
            pieces.append(tuples_piece(*waiting))
        notes = {"next": self._next, "panes": panes, "seen": [list(one) for one in seen]}
        return State(notes | {"waiting": waiting is not None}, pieces)

    def restore(self, kept: KeptPieces) -> None:
        """Restores a state. Call it after `open`, and before the first step."""
        pieces = iter(kept.pieces)
        for number, first, folded, parts in kept.notes["panes"]:
            held = [part_of(next(pieces), self._keys, self._layout) for _ in range(parts)]
            self._panes[number] = Pane(held, first, folded)
        for distinct, numbers in zip(self._distinct, kept.notes["seen"], strict=True):
            for number in numbers:
                for key, value in seen_of(next(pieces), self._keys):
                    distinct.add(number, key, value)
        self._next = kept.notes["next"]
        if kept.notes["waiting"]:
            table, positions = tuples_of(next(pieces))
            self._pending.restore(table, positions)
        self._forget(self._not_before)

    def step(self, table: pa.Table, first: int, ts: Ints, last: int, watermark: int) -> Emitted:
        """Takes the tuples `first`…`last`, whose event times are `ts`."""
        if self._next is None:
            self._next = max(self._grid.starting_from(first - 1), self._not_before)
        self._pending.add(table, first, ts, self._grid.first_pane(self._next))
        del table
        # Not by `instant`: a replay has yet to bring the tuples of panes before it.
        closed_to = last if self._by_position else watermark
        open_pane = self._grid.pane(closed_to)
        if ready := self._pending.take(last, open_pane):
            self._add(ready, self._lift(ready))
        until = self._grid.open_at(closed_to)
        windows = list(self._windows(self._next, until, open_pane))
        columns, starts, ends, ts, born = self._rows(windows)
        self._forget(until)
        if watermark == END_WATERMARK:
            self._forget(_NEVER)  # windows of positions that were never filled
        if self._by_position:
            self._instant = max(self._instant, last)
        else:
            self._instant, watermark = self._bounds(max(watermark, self._instant))
        needed = self._needed()
        needless = last if needed is None else needed - 1
        return Emitted(columns, starts, ends, ts, born, watermark, needless, self._instant)

    def _bounds(self, passed: int) -> tuple[int, int]:
        """The last end of a window up to `passed`, and the next one."""
        if passed in (START_WATERMARK, END_WATERMARK):
            return passed, passed
        following = self._grid.open_at(passed)
        return self._grid.end(following - 1), min(self._grid.end(following), END_WATERMARK - 1)

    def _add(self, ready: Ready, lifted: Lifted) -> None:
        """Adds lifted groups to their panes. Groups are numbered by pane, then by block, so each
        pane gets its parts in order.
        """
        ids = self._keys.number(lifted.keys, len(lifted.groups))
        order = np.argsort(lifted.groups, kind="stable")
        groups, ids = lifted.groups[order], ids[order]
        columns = [column[order] for column in lifted.columns]
        bounds = [0, *(np.flatnonzero(np.diff(groups)) + 1).tolist(), len(groups)]
        for begin, end in pairwise(bounds):
            part = Part(ids[begin:end], [column[begin:end] for column in columns])
            self._add_part(ready.pane(int(groups[begin])), part)
        for distinct, (where, keys, values) in zip(self._distinct, lifted.distinct, strict=True):
            numbers = self._keys.number(keys, len(where))
            for group, key, value in zip(where.tolist(), numbers.tolist(), values, strict=True):
                distinct.add(ready.pane(group), key, value)

    def _add_part(self, number: int, part: Part) -> None:
        self._keys.hold(part.ids)
        first = int(self._layout.of(self._plan.first, part.columns)[0].min())
        pane = self._panes.get(number)
        if pane is None:
            self._panes[number] = Pane([part], first)
            return
        pane.parts.append(part)
        pane.first = min(pane.first, first)
        # Merging from the left may stop anywhere and go on. Waiting for twice the size makes up
        # for merging what has been merged before.
        if sum(map(len, pane.parts)) > 2 * pane.folded + BLOCK:
            pane.folded = len(self._folded(pane))

    def _folded(self, pane: Pane) -> Part:
        if len(pane.parts) > 1:
            whole = fold(self._layout, pane.parts)
            self._keys.hold(whole.ids)
            for part in pane.parts:
                self._keys.release(part.ids)
            pane.parts = [whole]
        return pane.parts[0]

    def _windows(self, begin: int, until: int, open_pane: int) -> Iterator[Window]:
        """The windows from `begin` up to before `until` that hold anything, however far apart."""
        order = sorted(pane for pane in self._panes if pane < open_pane)
        closed = {pane: self._folded(self._panes[pane]) for pane in order}
        window = begin
        while True:
            at = bisect_left(order, self._grid.first_pane(window))
            if at == len(order):
                return
            window = max(window, self._grid.first_window(order[at]))
            if window >= until:
                return
            yield self._window(window, closed, order)
            window += 1

    def _window(self, window: int, closed: Mapping[int, Part], order: Sequence[int]) -> Window:
        first = self._grid.first_pane(window)
        if self._grid.span == 1:
            part = closed[first]
        else:
            part = self._slide.window(first, closed, order)
        rank = np.argsort(self._layout.of(self._plan.first, part.columns)[0])
        part = Part(part.ids[rank], [column[rank] for column in part.columns])
        end = first + self._grid.span
        return window, part, [one.window(first, end, part.ids) for one in self._distinct]

    def _rows(
        self, windows: Sequence[Window]
    ) -> tuple[list[pa.ChunkedArray], Ints, Ints, Ints, Ints]:
        """The rows of these windows: keys and calls; the windows' starts and ends; `_ts` and
        `_born`.
        """
        if not windows:
            none = np.zeros(0, np.int64)
            return [], none, none, none, none
        numbers, parts, counts = zip(*windows, strict=True)
        whole = join(parts)
        repeats = [len(part) for part in parts]
        starts = np.repeat(np.array([self._grid.start(k) for k in numbers], np.int64), repeats)
        ends = starts + self._grid.width
        ts = ends
        if self._plan.latest:
            latest = [self._layout.of(self._plan.latest, part.columns)[0].max() for part in parts]
            ts = np.repeat(np.array(latest, np.int64), repeats)
        distinct = [np.concatenate(one) for one in zip(*counts, strict=True)]
        results = self._plan.results(whole.columns, distinct)
        columns = [*self._keys.columns(whole.ids), *map(pa.chunked_array, ([r] for r in results))]
        born = self._layout.of(self._plan.born, whole.columns)[0]
        return columns, starts, ends, ts, born

    def _forget(self, until: int) -> None:
        """Forgets what only the windows before `until` need, which have come out."""
        if self._next is None or until <= self._next:
            return
        self._next = until
        kept = self._grid.first_pane(until)
        for distinct in self._distinct:
            distinct.drop(kept)
        for number in [pane for pane in self._panes if pane < kept]:
            for part in self._panes.pop(number).parts:
                self._keys.release(part.ids)
        self._pending.drop(kept)

    def _needed(self) -> int | None:
        """The first position that a window still to come needs."""
        firsts = [pane.first for pane in self._panes.values()]
        if self._pending.first is not None:
            firsts.append(self._pending.first)
        return min(firsts, default=None)
