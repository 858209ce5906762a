"""Tells a pocket how far its input has come, at whole multiples of some time, counted from 1970,
each after all tuples with an earlier event time and before all others.

Tuples that come before their turn wait. So the order in which a pocket gets tuples and ticks is a
function of the tuples alone, however they were cut into batches and whenever the watermark moved.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.link.wire import EVENT_TIME
from anabranch.stream.batch import END_WATERMARK

AT_ONCE = 1_000
"""Ticks that are given before others of the site get their turn."""


class Ticks:
    def __init__(self, every_us: int, schema: pa.Schema) -> None:
        self._every = every_us
        self._waiting: pa.Table = schema.empty_table()
        self._next: int | None = None
        """The tick that comes next; none before the first tuple."""

    def state(self) -> dict[str, Any]:
        return {"waiting": self._waiting, "next": self._next}

    def restore(self, state: dict[str, Any]) -> None:
        self._waiting, self._next = state["waiting"], state["next"]

    def turns(self, tuples: pa.Table, watermark: int) -> Iterator[pa.Table | int]:
        """The tuples and ticks whose turn has come, at most AT_ONCE ticks; `more` says if there are
        others. At the end of the input there are none after the last tuple.
        """
        waiting = pa.concat_tables([self._waiting, tuples])
        if self._next is None:
            if not len(waiting):
                return
            self._next = self._after(int(waiting.column(EVENT_TIME)[0].as_py()))
        turn = np.maximum(
            waiting.column(EVENT_TIME).to_numpy() // self._every * self._every,
            self._next - self._every,
        )
        last = (
            int(turn.max(initial=self._next - self._every))
            if watermark == END_WATERMARK
            else watermark
        )
        last = min(last, self._next + (AT_ONCE - 1) * self._every)
        order = np.argsort(turn, kind="stable")
        turn = turn[order]
        now = int(np.searchsorted(turn, max(last, self._next - self._every), side="right"))
        yield from self._in_order(waiting.take(order[:now]), turn[:now], last)
        self._waiting = waiting.take(np.sort(order[now:]))

    def _in_order(self, table: pa.Table, turn: np.ndarray, last: int) -> Iterator[pa.Table | int]:
        """`table` by turns, and the ticks up to `last` before, between and after them."""
        assert self._next is not None
        cuts = [0, *(np.flatnonzero(np.diff(turn)) + 1), len(turn)]
        for start, end in pairwise(cuts):
            while end > start and self._next <= turn[start]:
                yield self._tick()
            if end > start:
                yield table.slice(start, end - start)
        while self._next <= last:
            yield self._tick()

    def _tick(self) -> int:
        assert self._next is not None
        tick, self._next = self._next, self._next + self._every
        return tick

    def more(self, watermark: int) -> bool:
        """Whether there are turns that `turns` has left for later."""
        if watermark == END_WATERMARK:
            return len(self._waiting) > 0
        return self._next is not None and self._next <= watermark

    @property
    def reached(self) -> int:
        """The time from which all later results are, if there is `more`."""
        assert self._next is not None
        return self._next

    def _after(self, time: int) -> int:
        return (time // self._every + 1) * self._every
