"""How many bytes go to consumers and to standbys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from anabranch.stream.batch import Batch

_NEW = 0.25


@dataclass
class Traffic:
    """Bytes sent to primary consumers and to standbys: as they are, and as they went over the wire
    once compressed."""

    primary: int = 0
    shipped: int = 0
    packed: int = 0
    tuples: int = 0
    ratio: float = 1.0
    """Of compression, over the last few shipments: it varies with their size."""

    def sent(self, batch: Batch[Any]) -> None:
        self.primary += batch.nbytes if batch.rows else 0

    def shipped_as(self, batch: Batch[Any], nbytes: int) -> None:
        if batch.rows:
            ratio, weight = nbytes / batch.nbytes, _NEW if self.tuples else 1.0
            self.ratio += weight * (ratio - self.ratio)
            self.shipped += batch.nbytes
            self.packed += nbytes
            self.tuples += batch.rows
