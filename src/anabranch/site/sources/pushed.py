"""The facts that decide about rows that programs push, and those that must outlive the process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.link.wire import EVENT_TIME
from anabranch.stream.restart import START_WATERMARK
from anabranch.window import lateness

WRITERS = 1_000
"""So many programs are remembered: those that pushed last."""


@dataclass(frozen=True, slots=True)
class Pushed:
    """The state of a stream after the rows that were pushed."""

    lateness_us: int
    timed: bool | None = None
    """Whether event times are the programs' own; decided by the first push."""
    newest: int = START_WATERMARK
    """The greatest event time. No time of arrival lies below it, whatever the clock says."""
    late: int = 0
    writers: tuple[tuple[str, int], ...] = ()
    """Program → the number of its last push, the one that pushed last at the end."""

    @property
    def watermark(self) -> int:
        if not self.timed:
            return self.newest
        return lateness.watermark(self.newest, self.lateness_us)

    def arrival(self, now_us: int) -> Pushed:
        """The state once the clock has come this far."""
        return replace(self, newest=max(self.newest, now_us))

    def judge(self, times: np.ndarray) -> tuple[np.ndarray | None, Pushed]:
        """Which rows with these event times are late, None if none is; and the stream's state after
        them.
        """
        late = lateness.late(times, self.newest, self.lateness_us)
        newest = max(self.newest, int(times.max())) if len(times) else self.newest
        count = 0 if late is None else int(late.sum())
        return late, replace(self, newest=newest, late=self.late + count)

    def has(self, writer: str, number: int) -> bool:
        """Whether this push is here already: then its answer was lost."""
        return bool(writer) and dict(self.writers).get(writer, -1) >= number

    def written(self, writer: str, number: int) -> Pushed:
        if not writer:
            return self
        others = tuple(one for one in self.writers if one[0] != writer)[-WRITERS + 1 :]
        return replace(self, writers=(*others, (writer, number)))

    def notes(self) -> dict[str, object]:
        """The whole state, as JSON."""
        return {
            "timed": self.timed,
            "newest": self.newest,
            "late": self.late,
            "writers": [list(one) for one in self.writers],
        }

    def news(self, writer: str, number: int) -> dict[str, object]:
        """What one push changes."""
        last = [[writer, number]] if writer else []
        return {"timed": self.timed, "newest": self.newest, "late": self.late, "writers": last}

    def learned(self, notes: Mapping[str, Any]) -> Pushed:
        """The state after an entry with these notes."""
        same = ("timed", "newest", "late")
        state = replace(self, **{key: notes[key] for key in same if key in notes})
        for writer, number in notes.get("writers", ()):
            state = state.written(writer, number)
        return state


def times_of(table: pa.Table) -> np.ndarray:
    times: np.ndarray = table.column(EVENT_TIME).to_numpy()
    return times
