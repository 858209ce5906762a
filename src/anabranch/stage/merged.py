"""The results of a stage with several servers, computed from the global database.

A window is whole when every server has saved a state whose watermark has passed the window's end.
Saved states are never taken back: a new server goes on from the state of a lost one. So a whole
window has its last content, for every reader and every time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import duckdb
import pyarrow as pa

from anabranch.errors import SiteError
from anabranch.link.message import read
from anabranch.link.reports import SourceNews, StageReport
from anabranch.plan.stage import Stage
from anabranch.stage.global_database import READER, GlobalDatabase
from anabranch.stage.offsets import Offsets
from anabranch.stage.partials import PartialsSql, Slices, first_slice
from anabranch.stage.store import Checkpoint
from anabranch.stream.batch import END_WATERMARK, START_WATERMARK
from anabranch.window.panes import Grid

LOOK_S = 0.2
"""Between two looks for what has been saved."""
_SUMMED = ("rows", "late", "skipped")


class MergedRun:
    """The run of the merged results. It waits while the database is away."""

    def __init__(
        self,
        stage: Stage,
        columns: pa.Schema,
        grid: Grid,
        *,
        finite: bool,
        stopped: threading.Event,
    ) -> None:
        """`columns` are the columns of partials."""
        self.finite = finite
        self._parts = stage.parts
        self._database = GlobalDatabase(stage, columns)
        self._sql = PartialsSql(stage)
        self._grid = grid
        self._stopped = stopped
        self._seen: dict[int, Checkpoint] = {}
        self._slices = Slices(grid, {})
        self._problem = ""
        self._floor = START_WATERMARK

    def start(self) -> None:
        """Does nothing: there is nothing to start."""

    def close(self) -> None:
        self._stopped.set()

    def windows(self, after: int) -> Iterator[tuple[pa.Table, int]]:
        """Results of the windows that end after `after`, as they become whole, with the end of the
        last window in each table. Returns at the end of the source, or soon after `close`.
        """
        while not self._stopped.is_set():
            watermark = self._watermark(self._looked())
            end = self._slices.last_due(after, watermark)
            if end is not None:
                yield self.results(after, end), end
                after = end
            elif watermark == END_WATERMARK:
                return
            else:
                self._stopped.wait(LOOK_S)

    def results(self, after: int, upto: int) -> pa.Table:
        """Results of the windows that end after `after` and up to `upto`; waits until all are
        whole.
        """
        while self._watermark(self._looked()) < upto and not self._stopped.wait(LOOK_S):
            pass
        windows = self._slices.windows(after, upto) or [self._grid.open_at(upto) - 1]
        low = self._grid.first_pane(windows[0])
        high = self._grid.first_pane(windows[-1]) + self._grid.span
        while True:
            try:
                partials = self._database.partials(low, high)
                return self._lowered(partials, windows[0], windows[-1])
            except SiteError as error:
                self._wait(error)

    def state(self) -> tuple[pa.Table, dict[str, int]]:
        """The present results of the windows that are still kept, and the offsets that they belong
        to.
        """
        partials, parts = self._database.all()
        reader = parts.pop(READER, None)
        floor = reader.facts["floor"] if reader else START_WATERMARK
        counts = partials.column(0).value_counts().to_pylist()
        slices = Slices(self._grid, {one["values"]: one["counts"] for one in counts})
        windows = slices.windows(floor, END_WATERMARK) or [0]
        return self._lowered(partials, windows[0], windows[-1]), _offsets(parts)

    def release(self, upto: int, given: int) -> None:
        """Notes that results of windows that end at or before `upto`, `given` in all, are needed no
        more.
        """
        if upto > self._floor:
            try:
                self._database.release({"floor": upto, "given": given})
                self._floor = upto
            except SiteError as error:  # next time
                self._problem = error.line()
            self._slices.forget(first_slice(self._grid, upto))

    def released(self) -> tuple[int, int]:
        while True:
            try:
                reader = self._database.look().get(READER)
                return (
                    (reader.facts["floor"], reader.facts["given"])
                    if reader
                    else (START_WATERMARK, 0)
                )
            except SiteError as error:
                self._wait(error)

    def report(self) -> SourceNews:
        status = self._status(self._seen)
        stage = replace(read(StageReport, status), backup_problem=self._problem)
        return SourceNews(status["late"], status["skipped"], stage)

    # -- the database ----------------------------------------------------------------------------

    def _looked(self) -> dict[int, Checkpoint]:
        """The parts as they are saved; if one has grown, the slices are read again."""
        while True:
            try:
                parts = self._database.look()
                parts.pop(READER, None)
                before = {part: one.epoch for part, one in self._seen.items()}
                if {part: one.epoch for part, one in parts.items()} != before:
                    self._slices = Slices(self._grid, self._database.slices())
                    self._slices.forget(first_slice(self._grid, self._floor))
                    self._seen = parts
                self._problem = ""
                return self._seen
            except SiteError as error:
                self._wait(error)

    def _wait(self, error: SiteError) -> None:
        self._problem = error.line()
        if self._stopped.wait(LOOK_S):
            raise error

    def _watermark(self, parts: dict[int, Checkpoint]) -> int:
        if len(parts) < self._parts:
            return START_WATERMARK
        return min(one.facts.get("watermark", START_WATERMARK) for one in parts.values())

    def _status(self, parts: dict[int, Checkpoint]) -> dict[str, Any]:
        summed = {name: sum(one.facts.get(name, 0) for one in parts.values()) for name in _SUMMED}
        return summed | {
            "offsets": _offsets(parts),
            "watermark": self._watermark(parts),
            "slices": len(self._slices),
            "servers": len(parts),
        }

    def _lowered(self, partials: pa.Table, first: int, last: int) -> pa.Table:
        db = duckdb.connect(":memory:")
        try:
            db.register("merged", partials)
            query = self._sql.windows("merged", first, last, self._grid.stride, self._grid.span)
            return db.sql(query).to_arrow_table()
        finally:
            db.close()


def _offsets(parts: dict[int, Checkpoint]) -> dict[str, int]:
    """Partition → the offset before which all is in."""
    offsets: dict[str, int] = {}
    for part in parts.values():
        offsets |= Offsets.of(part.offsets).upto()
    return dict(sorted(offsets.items(), key=lambda item: (len(item[0]), item[0])))
