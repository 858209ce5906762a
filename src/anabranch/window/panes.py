"""Windows on an axis of whole numbers: event time in µs, or positions.

Windows overlap, so the axis is cut into panes that every window is a run of. Cutting at the starts
and ends of windows only gives at most two panes per slide, however width and slide divide each
other (with their greatest common divisor it could be thousands). Panes are numbered absolutely:
where an evaluation began changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Grid:
    """Windows [k·slide, k·slide + width) for every whole number k."""

    width: int
    slide: int

    @property
    def stride(self) -> int:
        """Panes from the start of one window to the start of the next."""
        return 2 if self.width % self.slide else 1

    @property
    def span(self) -> int:
        """The panes of one window; if windows leave gaps, those are panes too, of no window."""
        whole, rest = divmod(self.width, self.slide)
        return whole * 2 + 1 if rest else whole

    def panes(self, at: Ints) -> Ints:
        """The pane that each point lies in."""
        rest = self.width % self.slide
        window = at // self.slide
        if not rest:
            return window
        return 2 * window + (at - window * self.slide >= rest)

    def pane(self, at: int) -> int:
        """The pane that `at` lies in: all panes before it end at or before `at`."""
        window, offset = divmod(at, self.slide)
        rest = self.width % self.slide
        return 2 * window + (offset >= rest) if rest else window

    def in_window(self, panes: Ints) -> npt.NDArray[np.bool_]:
        """Whether any window covers the pane."""
        return panes % self.stride < self.span

    def first_window(self, pane: int) -> int:
        """The first of the windows that cover `pane`."""
        return -((self.span - 1 - pane) // self.stride)

    def first_pane(self, window: int) -> int:
        return window * self.stride

    def start(self, window: int) -> int:
        return window * self.slide

    def end(self, window: int) -> int:
        return window * self.slide + self.width

    def open_at(self, at: int) -> int:
        """The first window that ends after `at`."""
        return (at - self.width) // self.slide + 1

    def starting_from(self, at: int) -> int:
        """The first window that starts at or after `at`."""
        return -(-at // self.slide)
