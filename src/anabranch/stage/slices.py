"""Which slices a state has, and from that, which windows have anything in them and are due."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.stream.batch import START_WATERMARK
from anabranch.window.panes import Grid

MANY = 500_000
"""Partials of the windows that are given out together."""


class Slices(dict[int, int]):
    """Slice → the number of its partials."""

    def __init__(self, grid: Grid, counts: Mapping[int, int]) -> None:
        super().__init__(counts)
        self._grid = grid

    def count(self, more: Mapping[int, int]) -> None:
        for slice, rows in more.items():
            self[slice] = self.get(slice, 0) + rows

    def forget(self, floor: int) -> None:
        """Forgets the slices before the slice `floor`."""
        for slice in [one for one in self if one < floor]:
            del self[slice]

    def windows(self, after: int, until: int) -> list[int]:
        """The windows with anything in them that end after `after`, up to `until`."""
        grid = self._grid
        first, behind = grid.open_at(after), grid.open_at(until)
        found: set[int] = set()
        for slice in list(self):
            low = max(first, grid.first_window(slice))
            high = min(behind - 1, slice // grid.stride)
            found.update(range(low, high + 1))
        return sorted(found)

    def last_due(self, after: int, watermark: int) -> int | None:
        """The end of the last of the next windows to be given, if there are any: not too much at
        once.
        """
        if watermark == START_WATERMARK:
            return None
        rows, last = 0, None
        for window in self.windows(after, watermark):
            first = self._grid.first_pane(window)
            rows += sum(self.get(first + n, 0) for n in range(self._grid.span))
            if last is not None and rows > MANY:
                break
            last = window
        return None if last is None else self._grid.end(last)


def first_slice(grid: Grid, upto: int) -> int:
    """The first slice that a window needs which ends after `upto`."""
    return -(2**62) if upto == START_WATERMARK else grid.first_pane(grid.open_at(upto))
