"""Outlets that show every tuple with its position to whoever checks it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from anabranch.link.outlet import LiveOutlet
from simulation.ledger import Life
from simulation.rows import Row, RowPayloads, Rows
from simulation.topics import WIRE, in_ms, rows_of

Check = Callable[[str, Life | None, int, tuple[Row, ...], int], None]


class CheckedOutlet(LiveOutlet[Rows]):
    payloads: ClassVar[RowPayloads] = RowPayloads()

    def __init__(self, check: Check, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.life: Life | None = None
        self._check = check

    def append(self, batches: Any, watermark: int) -> int:
        first = self.last + 1
        parts = list(batches)
        last = super().append(parts, watermark)
        rows = tuple(row for one in parts for row in one.rows)
        self._check(self.stream, self.life, first, rows, watermark)
        return last


class SourcePayloads(RowPayloads):
    schema = WIRE


class SourceOutlet(CheckedOutlet):
    """The product's sources give Arrow, in microseconds; links of a simulation carry plain rows."""

    payloads: ClassVar[RowPayloads] = SourcePayloads()

    def append(self, batches: Any, watermark: int) -> int:
        return super().append(map(rows_of, batches), in_ms(watermark))
