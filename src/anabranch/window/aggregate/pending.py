"""Tuples that have not been lifted to partial aggregates yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.stream.batch import EVENT_TIME
from anabranch.window.panes import Grid, Ints

_CHUNKS = 64
_LEAST, _MOST = -(2**63), 2**63 - 1


@dataclass(frozen=True)
class Ready:
    """Tuples to be lifted. `groups` are numbered by pane, then by block of positions."""

    table: pa.Table
    positions: Ints
    groups: Ints
    panes: Sequence[int]
    blocks: int

    def pane(self, group: int) -> int:
        return self.panes[group // self.blocks]


class Pending:
    """At most one block of tuples: a full block is lifted at once."""

    def __init__(self, grid: Grid, block: int, by_position: bool) -> None:
        self._grid = grid
        self._block = block
        self._by_position = by_position
        self._table: pa.Table | None = None
        self._positions = np.zeros(0, np.int64)
        self._panes = np.zeros(0, np.int64)

    @property
    def first(self) -> int | None:
        """The first position among them."""
        return int(self._positions[0]) if len(self._positions) else None

    def tuples(self) -> tuple[pa.Table, Ints] | None:
        """All of them, with their positions."""
        return None if self._table is None else (self._table, self._positions)

    def restore(self, table: pa.Table, positions: Ints) -> None:
        """Restores the tuples as `tuples` gave them."""
        ts = table.column(EVENT_TIME).to_numpy()
        self._table, self._positions = table, positions
        self._panes = self._grid.panes(positions - 1 if self._by_position else ts)

    def drop(self, before: int) -> None:
        """Forgets the tuples of panes before `before`."""
        kept = self._panes >= min(max(before, _LEAST), _MOST)
        if not kept.all():
            self._keep(kept)

    def add(self, table: pa.Table, first: int, ts: Ints, lowest: int) -> None:
        """Adds tuples from position `first` on, without those of panes before `lowest`."""
        if not len(table):
            return
        positions = np.arange(first, first + len(table), dtype=np.int64)
        panes = self._grid.panes(positions - 1 if self._by_position else ts)
        needed = self._grid.in_window(panes) & (panes >= min(max(lowest, _LEAST), _MOST))
        if not needed.all():
            table = table.filter(pa.array(needed))
            positions, panes = positions[needed], panes[needed]
        if self._table is None or not len(self._table):
            self._table, self._positions, self._panes = table, positions, panes
            return
        self._table = pa.concat_tables([self._table, table])
        if self._table.num_columns and self._table.column(0).num_chunks > _CHUNKS:
            self._table = self._table.combine_chunks()
        self._positions = np.concatenate([self._positions, positions])
        self._panes = np.concatenate([self._panes, panes])

    def take(self, last: int, open_pane: int) -> Ready | None:
        """Takes the tuples in a block that ends at or before `last`, or in a pane before
        `open_pane`.
        """
        if self._table is None or not len(self._table):
            return None
        full = last // self._block * self._block
        ready = self._panes < min(max(open_pane, _LEAST), _MOST)
        ready |= self._positions <= full
        if not ready.any():
            return None
        table, positions, panes = self._table, self._positions, self._panes
        self._keep(~ready)
        if not ready.all():
            table = table.filter(pa.array(ready))
            positions, panes = positions[ready], panes[ready]
        return self._grouped(table, positions, panes)

    def _keep(self, kept: npt.NDArray[np.bool_]) -> None:
        if self._table is not None:
            # Not a view: that would hold all the tuples that came with these.
            self._table = self._table.filter(pa.array(kept)) if kept.any() else None
        self._positions, self._panes = self._positions[kept], self._panes[kept]

    def _grouped(self, table: pa.Table, positions: Ints, panes: Ints) -> Ready:
        block = (positions - 1) // self._block
        first, blocks = int(block[0]), int(block[-1] - block[0]) + 1
        low, high = int(panes.min()), int(panes.max())
        numbered: Sequence[int] = range(low, high + 1)
        if (high - low + 1) * blocks <= _MOST:
            index = panes - low
        else:
            distinct, index = np.unique(panes, return_inverse=True)
            numbered = distinct.tolist()
        return Ready(table, positions, index * blocks + (block - first), numbered, blocks)
