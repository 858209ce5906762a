"""Tuples of the simulation: event time and value; what batches of them carry."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.stream.batch import Batch

Row = tuple[int, int]
"""Event time, value."""


@dataclass(frozen=True, slots=True)
class Rows:
    rows: tuple[Row, ...]

    @property
    def num_rows(self) -> int:
        return len(self.rows)

    @property
    def nbytes(self) -> int:
        return len(self.rows)

    def slice(self, offset: int, length: int) -> Rows:
        return Rows(self.rows[offset : offset + length])


NONE = Rows(())
RowBatch = Batch[Rows]
