"""Outlets that show every tuple with its position to whoever checks it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from anabranch.link.outlet import LiveOutlet
from simulation.clock import Violation
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
        self._said: dict[str, int] = {}
        """What consumers say that they have, since they last began to follow."""

    def append(self, batches: Any, watermark: int) -> int:
        first = self.last + 1
        parts = list(batches)
        last = super().append(parts, watermark)
        rows = tuple(row for one in parts for row in one.rows)
        self._check(self.stream, self.life, first, rows, watermark)
        return last

    async def follow(self, out: Any, consumer: str, *asked: Any, **more: Any) -> None:
        self._said.pop(consumer, None)
        await super().follow(out, consumer, *asked, **more)

    def level0(self, consumer: str, position: int, *asked: Any, **more: Any) -> None:
        super().level0(consumer, position, *asked, **more)
        self._said[consumer] = max(position, self._said.get(consumer, 0))

    def room(self) -> bool:
        has_room = super().room()
        if not has_room and not self._store.falls_behind:
            self._must_wait_for_somebody()
        return has_room

    def _must_wait_for_somebody(self) -> None:
        """Who has said that it has all of it, perhaps from another producer, will not follow."""
        outlet = self._outlet
        lacking = min(map(self._has, outlet.consumers), default=outlet.last)
        if outlet.bytes_after(lacking) < self._limit:
            raise Violation(f"{self.stream} waits for nobody: all have {lacking} tuples")

    def _has(self, consumer: str) -> int:
        known = self._outlet.consumers[consumer]
        said = 0 if consumer in self._serving.there() else self._said.get(consumer, 0)
        return max(known.sent, known.released, said)


class SourcePayloads(RowPayloads):
    schema = WIRE


class SourceOutlet(CheckedOutlet):
    """The product's sources give Arrow, in microseconds; links of a simulation carry plain rows."""

    payloads: ClassVar[RowPayloads] = SourcePayloads()

    def append(self, batches: Any, watermark: int) -> int:
        return super().append(map(rows_of, batches), in_ms(watermark))
