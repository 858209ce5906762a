"""Tuples at the pace of their event times."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from anabranch.link.wire import EVENT_TIME

PACE_S = 0.01
"""Tuples that fall due within this time are sent together."""


def at_speed(
    tables: Iterator[pa.Table], *, speed: float, stopped: threading.Event
) -> Iterator[pa.Table]:
    """The tuples of `tables` at `speed` × event time, in pieces."""
    start, origin = time.monotonic(), None
    for table in tables:
        if not len(table):
            continue
        times = np.maximum.accumulate(table.column(EVENT_TIME).to_numpy())
        origin = int(times[0]) if origin is None else origin
        due = start + (times.astype(float) - origin) / (speed * 1e6)
        done = 0
        while done < len(table) and not stopped.is_set():
            ready = int(np.searchsorted(due, time.monotonic() + PACE_S, side="right"))
            if ready > done:
                yield table.slice(done, ready - done)
                done = ready
            if done < len(table):
                wait_s = max(PACE_S, float(due[done]) - time.monotonic())
                stopped.wait(min(wait_s, threading.TIMEOUT_MAX))
