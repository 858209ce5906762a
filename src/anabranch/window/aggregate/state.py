"""Partial aggregates of many keys at once, as numpy columns, how they are merged, and windows
made of panes.

Float addition is not associative, so every merge has an earlier and a later side and callers fix
the order by absolute positions. Each key's result depends on that key's operands alone, never on
where in an array they stand: only operations that are exact per element are used.

Van Herk, Gil and Werman's scheme: panes are grouped into blocks as long as a window, so a window is
the tail of one block and the head of the next. Tails are merged from a block's end backwards, heads
from its start forwards; a window merges one of each. Blocks begin at absolute pane numbers, so a
window's additions are associated the same way wherever the evaluation started.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.window.aggregate.fold import Groups
from anabranch.window.panes import Ints

Values = npt.NDArray[Any]
Columns = list[Values]


class Cell(Protocol):
    """A unit of partial state, in one or more columns. Equal cells are kept once."""

    @property
    def arguments(self) -> Sequence[Any]:
        """The values of each tuple that it is computed from."""

    @property
    def dtypes(self) -> tuple[str, ...]: ...

    def fold(self, groups: Groups, columns: Sequence[pa.ChunkedArray]) -> Columns:
        """The state of each group, folded from its tuples' arguments in order of position."""

    def merge(self, earlier: Columns, later: Columns) -> Columns: ...


OBJECT_BYTES = 60
"""About what an object of Python's takes besides the reference to it."""


def bytes_of(columns: Columns) -> int:
    """About what they take in memory."""
    objects = sum(len(column) for column in columns if column.dtype == object)
    return sum(column.nbytes for column in columns) + OBJECT_BYTES * objects


class Layout:
    """The columns of several cells beside each other."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self.cells = tuple(cells)
        self.dtypes = tuple(dtype for cell in cells for dtype in cell.dtypes)
        ends = np.cumsum([len(cell.dtypes) for cell in cells]).tolist()
        self._slices = [
            slice(end - len(cell.dtypes), end) for cell, end in zip(cells, ends, strict=True)
        ]

    def of(self, cell: Cell, columns: Columns) -> Columns:
        return columns[self._slices[self.cells.index(cell)]]

    def merge(self, earlier: Columns, later: Columns) -> Columns:
        merged: Columns = []
        with np.errstate(all="ignore"):  # inf − inf is NaN, as in SQL
            for cell, part in zip(self.cells, self._slices, strict=True):
                merged += cell.merge(earlier[part], later[part])
        return merged


@dataclass(frozen=True)
class Part:
    """Partial aggregates of some keys, each once, by the keys' numbers."""

    ids: Ints
    columns: Columns

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def nbytes(self) -> int:
        return self.ids.nbytes + bytes_of(self.columns)


@dataclass(frozen=True)
class Undo:
    """The values that a `Dense` held for some keys before it absorbed a part."""

    ids: Ints
    held: npt.NDArray[np.bool_]
    columns: Columns


class Dense:
    """Partial aggregates by key number, changed in place: absorbing costs as much as the part
    holds.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._held = np.zeros(0, np.bool_)
        self._columns: Columns = [np.zeros(0, dtype) for dtype in layout.dtypes]

    @property
    def nbytes(self) -> int:
        return self._held.nbytes + bytes_of(self._columns)

    def clear(self) -> None:
        self._held[:] = False

    def absorb(self, part: Part, *, earlier: bool = False) -> Undo:
        """Merges `part`, which is later than what is held (or `earlier`)."""
        ids = part.ids
        self._grow(int(ids.max(initial=-1)) + 1)
        held = self._held[ids]
        old = [column[ids] for column in self._columns]
        if held.any():
            both = slice(None) if held.all() else np.flatnonzero(held)
            mine = [column[both] for column in old]
            new = [column[both] for column in part.columns]
            merged = self._layout.merge(new, mine) if earlier else self._layout.merge(mine, new)
        for number, column in enumerate(self._columns):
            column[ids] = part.columns[number]
            if held.any():
                column[ids[both]] = merged[number]
        self._held[ids] = True
        return Undo(ids, held, old)

    def undo(self, undo: Undo) -> None:
        self._held[undo.ids] = undo.held
        for column, old in zip(self._columns, undo.columns, strict=True):
            column[undo.ids] = old

    def merged(self, later: Dense) -> Part:
        """What is held here or in `later`."""
        size = max(len(self._held), len(later._held))
        self._grow(size)
        later._grow(size)
        ids = np.flatnonzero(self._held[:size] | later._held[:size])
        mine = [column[ids] for column in self._columns]
        theirs = [column[ids] for column in later._columns]
        held, added = self._held[ids], later._held[ids]
        both = held & added
        if both.all():
            return Part(ids, self._layout.merge(mine, theirs))
        columns = [np.where(held, a, b) for a, b in zip(mine, theirs, strict=True)]
        if both.any():
            at = np.flatnonzero(both)
            merged = self._layout.merge([c[at] for c in mine], [c[at] for c in theirs])
            for column, new in zip(columns, merged, strict=True):
                column[at] = new
        return Part(ids, columns)

    def _grow(self, size: int) -> None:
        have = len(self._held)
        if size <= have:
            return
        size = max(size, 2 * have)
        self._held = np.concatenate([self._held, np.zeros(size - have, np.bool_)])
        self._columns = [
            np.concatenate([column, np.zeros(size - have, column.dtype)])
            for column in self._columns
        ]


def fold(layout: Layout, parts: Sequence[Part]) -> Part:
    """All of `parts`, the earliest first, merged from the left."""
    if len(parts) == 1:
        return parts[0]
    ids, slots = np.unique(np.concatenate([part.ids for part in parts]), return_inverse=True)
    held = np.zeros(len(ids), np.bool_)
    columns = [np.zeros(len(ids), dtype) for dtype in layout.dtypes]
    begin = 0
    for part in parts:
        at = slots[begin : begin + len(part)]
        begin += len(part)
        known = np.flatnonzero(held[at])
        merged = layout.merge(
            [column[at[known]] for column in columns], [column[known] for column in part.columns]
        )
        for number, column in enumerate(columns):
            column[at] = part.columns[number]
            column[at[known]] = merged[number]
        held[at] = True
    return Part(ids, columns)


def join(parts: Sequence[Part]) -> Part:
    """`parts` one after the other, with all keys."""
    if len(parts) == 1:
        return parts[0]
    columns = [np.concatenate(column) for column in zip(*(p.columns for p in parts), strict=True)]
    return Part(np.concatenate([part.ids for part in parts]), columns)


class Slide:
    """Computes windows of `span` panes. Ask for windows in order."""

    def __init__(self, layout: Layout, span: int) -> None:
        self._span = span
        self._tail = Dense(layout)
        self._head = Dense(layout)
        self._block: int | None = None
        self._undo: list[tuple[int, Undo]] = []
        """How the tail gets shorter again: for each of its panes, the first pane last."""
        self._head_to = 0

    @property
    def nbytes(self) -> int:
        undone = sum(bytes_of(undo.columns) for _, undo in self._undo)
        return self._tail.nbytes + self._head.nbytes + undone

    def window(self, first: int, panes: Mapping[int, Part], order: Sequence[int]) -> Part:
        """The window that begins with pane `first`. `order` lists the numbers of `panes` in order,
        with all that lie in the window.
        """
        block = first // self._span
        middle = (block + 1) * self._span
        if block != self._block:
            tail = order[bisect_left(order, first) : bisect_left(order, middle)]
            self._begin(block, [(pane, panes[pane]) for pane in tail])
        while self._undo and self._undo[-1][0] < first:
            self._tail.undo(self._undo.pop()[1])
        end = first + self._span
        for pane in order[bisect_left(order, self._head_to) : bisect_left(order, end)]:
            self._head.absorb(panes[pane])
        self._head_to = end
        return self._tail.merged(self._head)

    def _begin(self, block: int, panes: Sequence[tuple[int, Part]]) -> None:
        """Begins a block. Each pane of the tail changes only the keys it holds, so only these are
        kept.
        """
        self._block = block
        self._tail.clear()
        self._head.clear()
        self._undo = [(q, self._tail.absorb(part, earlier=True)) for q, part in reversed(panes)]
        self._head_to = (block + 1) * self._span
