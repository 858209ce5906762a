"""Windows: how long a tuple takes part after its own event time."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from anabranch.plan.spec import Spec


class Range(Spec):
    """`S[10s]`: at time t, the tuples with t − width < ts ≤ t."""

    kind: Literal["range"] = "range"
    width_us: int


class Rows(Spec):
    """`S[10 ROWS]`: at time t, the last `count` tuples with ts ≤ t by (ts, position)."""

    kind: Literal["rows"] = "rows"
    count: int


class TableWindow(Spec):
    """A table: a row takes part from the version that brought it up to the one that removed it.

    The table's stream holds, besides its columns, `_gone`: NULL for a row that came, and for a
    removal the position of the removed row.
    """

    kind: Literal["relation"] = "relation"


class Until(Spec):
    """The result of a partial join, whose `_until` (µs) says from when on it takes no part."""

    kind: Literal["until"] = "until"


Window = Annotated[Range | Rows | TableWindow | Until, Field(discriminator="kind")]

WINDOW_START, WINDOW_END = "window_start", "window_end"
GONE = "_gone"
UNTIL = "_until"


class TimePanes(Spec):
    """Windows [k·slide, k·slide + width) of event time, for every whole number k."""

    kind: Literal["time"] = "time"
    width_us: int
    slide_us: int

    @property
    def bounds(self) -> str:
        """The Spark SQL type of `window_start` and `window_end`, which is the end excluded."""
        return "timestamp"


class RowPanes(Spec):
    """Windows of the positions k·slide + 1 … k·slide + width, for k = 0, 1, …"""

    kind: Literal["rows"] = "rows"
    width: int
    slide: int

    @property
    def bounds(self) -> str:
        """The Spark SQL type of `window_start` and `window_end`: first and last position."""
        return "bigint"


Panes = Annotated[TimePanes | RowPanes, Field(discriminator="kind")]
