"""Event times from the future. One that is wrong by a century would make all that follow it late,
for ever; so what is further ahead than a stream allows is malformed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa

from anabranch.errors import SourceError
from anabranch.link.wire import EVENT_TIME
from anabranch.plan.operators import Call
from anabranch.stream.batch import END_WATERMARK
from anabranch.units import show_duration

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def too_far(table: pa.Table, now_us: int, ahead_us: int | None) -> np.ndarray | None:
    """Which rows are; None if none is, or they may be as far as they like."""
    if ahead_us is None or EVENT_TIME not in table.schema.names or not len(table):
        return None
    limit = min(now_us + ahead_us, END_WATERMARK)
    far = table.column(EVENT_TIME).to_numpy() > limit
    return far if far.any() else None


def far_ahead(table: pa.Table, far: np.ndarray, ahead_us: int) -> SourceError:
    """About the first of them."""
    time_us = int(table.column(EVENT_TIME).to_numpy()[int(far.argmax())])
    return SourceError(
        f"the event time {_shown(time_us)} is more than {show_duration(ahead_us)} ahead of the"
        " clock",
        remedy="Mend the row, set on_error = 'skip', or let AHEAD allow it.",
    )


def skips(source: Call | None) -> bool:
    """Malformed rows are left out and counted, rather than that the stream fails by them."""
    return source is not None and source.options.get("on_error") == "skip"


def _shown(time_us: int) -> str:
    try:
        return (_EPOCH + timedelta(microseconds=time_us)).isoformat()
    except OverflowError:
        return f"{time_us} µs"
