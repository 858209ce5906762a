"""Partial aggregates of many keys at once, as numpy columns, and how they are merged.

Float addition is not associative, so every merge has an earlier and a later side and callers fix
the order by absolute positions. Each key's result depends on that key's operands alone, never on
where in an array they stand: only operations that are exact per element are used.
"""

from __future__ import annotations

from collections.abc import Sequence
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
        here, there = self._held[ids], later._held[ids]
        both = here & there
        if both.all():
            return Part(ids, self._layout.merge(mine, theirs))
        columns = [np.where(here, a, b) for a, b in zip(mine, theirs, strict=True)]
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
