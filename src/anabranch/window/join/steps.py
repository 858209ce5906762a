"""The input of a step of a join, and its output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from anabranch.stream.batch import START_WATERMARK
from anabranch.window.arrays import I64


@dataclass(frozen=True)
class Arrival:
    """The tuples that one step takes from one input with their `_ts` and `_born`, their positions,
    the last position taken so far, and the watermark after them.
    """

    table: pa.Table
    positions: I64
    last: int
    watermark: int


@dataclass(frozen=True)
class Outcome:
    """`table`: results in order, with `_ts`, `_born`, and what a partial join adds; None if there
    are none. The rest is as in a body's `Produced`."""

    table: pa.Table | None
    watermark: int
    needless: tuple[int, ...]
    instant: int
    more: bool = False
    """A step without arrivals goes on where this one was cut."""


def at_start(arrivals: Sequence[Arrival], instant: int) -> Outcome:
    """The outcome before anything was evaluated."""
    before = [int(a.positions[0]) - 1 if len(a.positions) else a.last for a in arrivals]
    return Outcome(None, START_WATERMARK, tuple(before), instant)
