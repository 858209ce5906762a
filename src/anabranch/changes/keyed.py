"""The rows of one input, found by their keys."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from anabranch.window.arrays import I64, U64, Carried, Growing, Mask, row_hashes
from anabranch.window.join.members import Index

_FEW = 4096
"""So many dead rows are no reason to move the others."""


class KeyedRows:
    """Rows in the order in which they came, with a hash of their key. Those of several keys may
    have one hash: who asks for one gets the rows of all of them, and of none only a part."""

    def __init__(self, schema: pa.Schema, key: Sequence[str]) -> None:
        self.schema = schema
        self.key = tuple(key)
        self._index = Index(self.key)
        self._rows = Growing({"hash": np.uint64, "alive": np.bool_})
        self._columns = Carried(schema.types)
        self._dead = 0

    def __len__(self) -> int:
        return self._rows.size - self._dead

    @property
    def nbytes(self) -> int:
        return self._columns.nbytes

    def hashes(self, table: pa.Table) -> U64:
        return row_hashes(table.select(self.key).columns, len(table))

    def all(self) -> I64:
        """The numbers of all rows, in their order. Good until the next change."""
        rows: I64 = np.flatnonzero(self._rows["alive"])
        return rows

    def touched(self, sorted_hashes: U64) -> I64:
        """The numbers of the rows that have one of the hashes."""
        found = []
        for segment in self._index.segments(fresh=True):
            _, low, count = segment.find(sorted_hashes)
            found.append(segment.rows[_ranges(low, count)])
        rows: I64 = np.sort(np.concatenate(found)) if found else np.zeros(0, np.int64)
        alive: I64 = rows[self._rows["alive"][rows]]
        return alive

    def take(self, rows: I64) -> pa.Table:
        arrays = self._columns.take(range(len(self.schema)), rows)
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def change(self, gone: I64, come: pa.Table) -> None:
        """The rows with the numbers `gone` are there no more; those that `come` are the last."""
        self._rows["alive"][gone] = False
        self._dead += len(gone)
        if count := len(come):
            hashes, first = self.hashes(come), self._rows.size
            self._rows.append({"hash": hashes, "alive": True}, count)
            self._columns.append([column.combine_chunks() for column in come.columns], count)
            self._index.add(hashes, np.arange(first, first + count))
            self._index.settle(self._rows["alive"].view(np.int8), 0)
        if self._dead > _FEW and self._dead > len(self):
            self._forget_the_dead()

    def _forget_the_dead(self) -> None:
        alive: Mask = self._rows["alive"].copy()
        self._index.renumber(alive, np.cumsum(alive) - 1)
        self._columns.keep(alive)
        self._rows.keep(alive)
        self._dead = 0


def _ranges(low: I64, count: I64) -> I64:
    """`low[0]`, … so many, `low[1]`, …"""
    starts = np.cumsum(count) - count
    places: I64 = np.repeat(low - starts, count) + np.arange(count.sum())
    return places
