"""What the streams of sources have given so far, position by position, and what they may give."""

from __future__ import annotations

from simulation.clock import Violation
from simulation.plan import SourceSpec
from simulation.rows import Row

Stream = list[Row]


class Given:
    """Of one source. Once a tuple has been given, its position is taken for good; and once a
    watermark has, no new tuple is older."""

    def __init__(self, spec: SourceSpec) -> None:
        self._spec = spec
        self.rows: Stream = []
        self._promised: int | None = None

    @property
    def is_known(self) -> bool:
        """All that it will ever hold is known."""
        return not self._spec.arrival or len(self.rows) == len(self._spec.rows)

    @property
    def stream(self) -> Stream:
        return self.rows if self._spec.arrival else list(self._spec.rows)

    def go_on_after(self, position: int) -> None:
        """Nobody needs what was read up to there, though it may never have been given."""
        for _, value in self._spec.rows[len(self.rows) : position]:
            self.rows.append((-1, value) if self._spec.arrival else self._spec.rows[len(self.rows)])

    def check(self, first: int, rows: tuple[Row, ...], watermark: int) -> None:
        if first > len(self.rows) + 1:
            raise Violation(
                f"stream {self._spec.name} goes on at {first}, and has given {len(self.rows)}"
            )
        for position, row in enumerate(rows, first):
            if position <= len(self.rows):
                self._same(position, row)
            else:
                self._new(position, row)
        self._promised = max(watermark, self._promised or watermark)

    def _same(self, position: int, row: Row) -> None:
        if row != (before := self.rows[position - 1]):
            raise Violation(f"stream {self._spec.name}, position {position}: {before}, then {row}")

    def _new(self, position: int, row: Row) -> None:
        wanted = self._spec.rows[position - 1 : position]
        of_time = row[0] if self._spec.arrival else wanted and wanted[0][0]
        if not wanted or row != (of_time, wanted[0][1]):
            raise Violation(f"stream {self._spec.name}, position {position}: {row} is not next")
        if self._promised is not None and row[0] < self._promised:
            raise Violation(
                f"stream {self._spec.name}, position {position}: {row} comes after watermark"
                f" {self._promised}"
            )
        self.rows.append(row)
