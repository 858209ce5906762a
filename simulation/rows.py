"""What batches carry in a simulation: tuples of two numbers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from anabranch.stream.batch import Batch

Row = tuple[int, int]
"""Event time, value."""
ROW_BYTES = 30_000
"""As large as tuples that a standby puts its work off for, and that fill queues."""


@dataclass(frozen=True, slots=True)
class Rows:
    rows: tuple[Row, ...]

    @property
    def num_rows(self) -> int:
        return len(self.rows)

    @property
    def nbytes(self) -> int:
        return len(self.rows) * ROW_BYTES

    def slice(self, offset: int, length: int) -> Rows:
        return Rows(self.rows[offset : offset + length])


NONE = Rows(())
RowBatch = Batch[Rows]


class RowPayloads:
    nothing = NONE
    schema: Any = None

    def newest(self, part: Rows) -> int:
        return max(time for time, _ in part.rows)

    def rows_before(self, part: Rows, time: int) -> int:
        later = (number for number, row in enumerate(part.rows) if row[0] >= time)
        return next(later, part.num_rows)

    def joined(self, parts: Sequence[Rows]) -> Rows:
        return Rows(tuple(row for part in parts for row in part.rows))

    def packed(self, parts: Sequence[Rows]) -> bytes:
        return json.dumps(self.joined(parts).rows).encode()

    def unpacked(self, body: bytes | memoryview) -> Rows:
        return Rows(tuple((time, value) for time, value in json.loads(bytes(body))))
