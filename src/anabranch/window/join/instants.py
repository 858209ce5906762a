"""Evaluation instants. An input's rows at an instant depend on its time alone, so instants of one
time are one: the first of them, by order in MASTER and position, is its trigger.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from anabranch.window.arrays import I64
from anabranch.window.join.buffer import Closed


@dataclass(frozen=True)
class Instants:
    """Times, ascending, and when each one's trigger entered the system."""

    times: I64
    born: I64

    def __len__(self) -> int:
        return len(self.times)


def instants(masters: Sequence[Closed | None], after: int) -> Instants:
    """The instants of tuples that closed together, given in the order of MASTER; only those after
    `after`.
    """
    behind = [
        closed.slice(int(np.searchsorted(closed.ts, after, side="right")), len(closed))
        for closed in masters
        if closed is not None
    ]
    if not any(map(len, behind)):
        return Instants(np.empty(0, np.int64), np.empty(0, np.int64))
    ts = np.concatenate([closed.ts for closed in behind])
    born = np.concatenate([closed.born for closed in behind])
    # Each is in the order of (time, position): a stable sort puts the trigger first.
    order = np.argsort(ts, kind="stable")
    times, first = np.unique(ts[order], return_index=True)
    return Instants(times, born[order][first])
