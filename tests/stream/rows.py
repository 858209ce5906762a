"""A payload without Arrow: tuples that know their event time and their size."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.stream.batch import START_WATERMARK, Batch


@dataclass(frozen=True)
class Rows:
    """`items` are (event time, bytes) pairs."""

    items: tuple[tuple[int, int], ...] = ()

    @property
    def num_rows(self) -> int:
        return len(self.items)

    @property
    def nbytes(self) -> int:
        return sum(size for _, size in self.items)

    def slice(self, offset: int, length: int) -> Rows:
        return Rows(self.items[offset : offset + length])


def rows(*times: int) -> Rows:
    return Rows(tuple((time, 1) for time in times))


def batch(
    first: int, data: Rows, watermark: int = START_WATERMARK, *, epoch: int = 0
) -> Batch[Rows]:
    return Batch("S", first, watermark, epoch, data)
