"""Event times from the future. A time that is wrong by a century would make all later tuples late
for ever, so rows further ahead than a stream allows count as malformed.
"""

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
    """Which rows are too far ahead; None if no row is, or if there is no bound."""
    if ahead_us is None or EVENT_TIME not in table.schema.names or not len(table):
        return None
    limit = min(now_us + ahead_us, END_WATERMARK)
    far = table.column(EVENT_TIME).to_numpy() > limit
    return far if far.any() else None


def far_ahead(table: pa.Table, far: np.ndarray, ahead_us: int) -> SourceError:
    """The error about the first of these rows."""
    time_us = int(table.column(EVENT_TIME).to_numpy()[int(far.argmax())])
    return SourceError(
        f"the event time {_shown(time_us)} is more than {show_duration(ahead_us)} ahead of the"
        " clock",
        remedy="Mend the row, set on_error = 'skip', or let AHEAD allow it.",
    )


def skips(source: Call | None) -> bool:
    """Whether malformed rows are left out and counted; otherwise the stream fails at the first."""
    return source is not None and source.options.get("on_error") == "skip"


def _shown(time_us: int) -> str:
    try:
        return (_EPOCH + timedelta(microseconds=time_us)).isoformat()
    except OverflowError:
        return f"{time_us} µs"
