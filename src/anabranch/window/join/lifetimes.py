"""Until when a tuple takes part: it takes part at the instants t with ts ≤ t < end.

All rows are in the order of (event time, position), and every row that may still lack an end is
among the last ones, so ends follow from the arrays alone.
"""

from __future__ import annotations

import numpy as np

from anabranch.plan.windows import GONE, UNTIL, Range, Rows, Window
from anabranch.stream.batch import END_WATERMARK
from anabranch.window.arrays import I64
from anabranch.window.join.buffer import Closed

FOREVER = END_WATERMARK


def own_column(window: Window) -> str | None:
    """The column of the stream that says how long its tuples take part."""
    match window.kind:
        case "relation":
            return GONE
        case "until":
            return UNTIL
    return None


def ascending(window: Window) -> bool:
    """Whether rows end in the order in which they begin."""
    return isinstance(window, Range | Rows)


def first_ends(window: Window, closed: Closed, own: int | None) -> I64:
    """The ends of new rows as far as the rows alone tell; `own` is the number of their own
    column.
    """
    if isinstance(window, Range):
        latest = FOREVER - window.width_us
        return np.where(
            closed.ts > latest, FOREVER, np.minimum(closed.ts, latest) + window.width_us
        )
    if window.kind == "until" and own is not None:
        ends: I64 = closed.columns[own].to_numpy(zero_copy_only=False).astype(np.int64)
        return ends
    return np.full(len(closed), FOREVER)


def end_by_count(ts: I64, ends: I64, count: int, new: int) -> None:
    """Sets the ends of `S[count ROWS]`: a row ends where the `count`-th after it begins; the last
    `new` rows are new. (The last `count` rows are never dropped, so none is missing in between.)
    """
    first = max(0, len(ts) - new - count)
    stop = max(first, len(ts) - count)
    ends[first:stop] = ts[first + count : stop + count]


def split_removals(closed: Closed, gone: int) -> tuple[Closed, I64, I64]:
    """Splits off removals: the rows that came; the positions of the rows that went, and when."""
    column = closed.columns[gone]
    if column.null_count == len(column):
        return closed, np.empty(0, np.int64), np.empty(0, np.int64)
    came = column.is_null().to_numpy(zero_copy_only=False)
    went = np.flatnonzero(~came)
    positions = column.take(went).to_numpy(zero_copy_only=False).astype(np.int64)
    return closed.take(np.flatnonzero(came)), positions, closed.ts[went]


def end_removed(pos: I64, ts: I64, ends: I64, removed: I64, when: I64) -> None:
    """Ends removed rows. A row that is not here any more had ended before. No row is removed before
    it came.
    """
    if not len(removed) or not len(pos):
        return
    # A table's versions come in order, so usually there is nothing to sort.
    order = None if bool(np.all(pos[1:] > pos[:-1])) else np.argsort(pos)
    place = np.minimum(np.searchsorted(pos, removed, sorter=order), len(pos) - 1)
    row = place if order is None else order[place]
    known = (pos[row] == removed) & (when >= ts[row])
    np.minimum.at(ends, row[known], when[known])
