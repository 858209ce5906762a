"""The one rule of lateness. A tuple is late if its event time is more than the stream's lateness
below the greatest event time before it. The watermark after some tuples is the least event time
that the next one may have without being late.

What is decided depends on the order of the event times alone, not on how they are cut into tables.
"""

from __future__ import annotations

import numpy as np

from anabranch.stream.restart import END_WATERMARK, START_WATERMARK


def watermark(newest: int, lateness_us: int) -> int:
    """The watermark after tuples whose greatest event time is `newest`. An event time, however far,
    ends no stream.
    """
    return min(max(newest, START_WATERMARK + lateness_us) - lateness_us, END_WATERMARK - 1)


def late(times: np.ndarray, newest: int, lateness_us: int) -> np.ndarray | None:
    """Which tuples are late, given their event times in order and the greatest before them; None
    if none is."""
    if not len(times) or (times[0] >= newest and bool((times[1:] >= times[:-1]).all())):
        return None
    before = np.maximum.accumulate(np.concatenate(([newest], times[:-1])))
    late_rows: np.ndarray = times < np.maximum(before, START_WATERMARK + lateness_us) - lateness_us
    return late_rows if late_rows.any() else None
