"""Finds the rows with a given key hash. Segments are sorted and merged geometrically: adding a row
costs the logarithm of their number, amortised, and a lookup too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from anabranch.window.arrays import I64, MERGED_AT, U64, Mask


@dataclass(frozen=True)
class Segment:
    """Rows by ascending key hash; rows with the same hash keep their own order."""

    hashes: U64
    rows: I64

    @classmethod
    def of(cls, hashes: U64, rows: I64) -> Segment:
        order = np.argsort(hashes, kind="stable")
        return cls(hashes[order], rows[order])

    def __len__(self) -> int:
        return len(self.rows)

    def only(self, mask: Mask) -> Segment:
        return self if mask.all() else Segment(self.hashes[mask], self.rows[mask])

    def find(self, sorted_hashes: U64) -> tuple[I64, I64, I64]:
        """Which of the hashes are here; for each of those, its first place and the number of its
        rows.
        """
        low = np.searchsorted(self.hashes, sorted_hashes)
        hit = np.flatnonzero(self.hashes[np.minimum(low, len(self) - 1)] == sorted_hashes)
        high = np.searchsorted(self.hashes, sorted_hashes[hit], side="right")
        return hit, low[hit], high - low[hit]


class Index:
    """An index of one input on `columns`. The rows that are being evaluated are separate until they
    are settled.
    """

    def __init__(self, columns: tuple[str, ...]) -> None:
        self.columns = columns
        self._segments: list[Segment] = []
        self._fresh: Segment | None = None

    def __len__(self) -> int:
        return sum(map(len, self._segments))

    def add(self, hashes: U64, rows: I64) -> None:
        self._fresh = Segment.of(hashes, rows) if len(rows) else None

    def segments(self, fresh: bool) -> Iterator[Segment]:
        yield from self._segments
        if fresh and self._fresh is not None:
            yield self._fresh

    def settle(self, ends: I64, horizon: int) -> None:
        """Makes fresh rows old. Merging drops rows that end at `horizon` or before."""
        if self._fresh is None:
            return
        segments = self._segments
        segments.append(self._fresh)
        self._fresh = None
        while len(segments) > 1 and len(segments[-2]) <= MERGED_AT * len(segments[-1]):
            alive = [segment.only(ends[segment.rows] > horizon) for segment in segments[-2:]]
            segments[-2:] = [_merged(alive)]
        if not len(segments[-1]):
            segments.pop()

    def renumber(self, alive: Mask, numbers: I64) -> None:
        """Removes rows that are not `alive`; the others have new numbers, in the same order."""
        kept = (segment.only(alive[segment.rows]) for segment in self._segments)
        self._segments = [Segment(s.hashes, numbers[s.rows]) for s in kept if len(s)]


def _merged(segments: Sequence[Segment]) -> Segment:
    # A stable sort of two ascending runs is a merge, and keeps older rows first.
    return Segment.of(
        np.concatenate([segment.hashes for segment in segments]),
        np.concatenate([segment.rows for segment in segments]),
    )
