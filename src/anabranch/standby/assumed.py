"""The quantities that a standby's cost depends on, guessed before enough was released to measure
them.

A window of ten minutes releases nothing for ten minutes, and a limit on overhead has to hold during
the first. So the forecast follows from the task's windows and from what is held already: a task
whose windows are `width` long and begin every `slide` releases a slide's tuples at a time, and
keeps the rest of a window. If more is held than that, something further down holds it.
"""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.units import show_duration


@dataclass(frozen=True, slots=True)
class Hold:
    """For how long, or for how many tuples, windows hold back what they have taken. All 0: each
    tuple is released once it is processed.
    """

    width_s: float = 0.0
    slide_s: float = 0.0
    width_rows: float = 0.0
    slide_rows: float = 0.0

    def __str__(self) -> str:
        if self.width_s:
            return f"a window of {show_duration(self.width_s * 1e6)}"
        return f"a window of {self.width_rows:,.0f} rows" if self.width_rows else "no window"


@dataclass(frozen=True, slots=True)
class Releases:
    """The form of a measurement: seconds between acks that release something, tuples that come in
    that time, and tuples that such an ack leaves.
    """

    interval_s: float
    arrived: float
    left: float


def assumed(hold: Hold, rate: float, held: float, ack_interval_s: float, lag_s: float) -> Releases:
    """`rate` is above 0; `held` tuples have not been released so far."""
    slide = max(hold.slide_s * rate, hold.slide_rows)
    arrived = max(slide, ack_interval_s * rate)
    left = max(hold.width_s * rate, hold.width_rows, arrived) - arrived + lag_s * rate
    beyond = max(0.0, held - (arrived + left))
    return Releases(arrived / rate, arrived + beyond, left)
