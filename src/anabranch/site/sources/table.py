"""A table as a stream of the changes that its source sees.

Every version has a stamp, the event time from which on it holds. The first holds from the beginning
of time: a replay of old tuples finds it. Each later one is stamped with the moment up to which the
watermark had promised that nothing would change.
"""

from __future__ import annotations

import io
import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from anabranch.connectors.table import TableReader
from anabranch.errors import AnabranchError, SourceAway, SourceError
from anabranch.link.outlet import LiveOutlet
from anabranch.link.reports import SourceReport
from anabranch.link.wire import record_batches
from anabranch.plan.catalog import TableDef
from anabranch.plan.windows import GONE
from anabranch.runtime.log import note
from anabranch.runtime.troubles import Backoff
from anabranch.stream.batch import START_WATERMARK

LEAD_S = 1.0
"""A change holds from about so much later on: the watermark runs ahead of the clock, so that no
instant waits for a change that may come."""
AWAY = Backoff(0.2, 5.0)
PIECE_ROWS = 65_536
Row = tuple[Any, ...]


class RowChanges:
    """Which rows came and which went, from one version to the next. A row is its values: one that
    stays keeps its position, whatever else changes. Pure.
    """

    def __init__(self) -> None:
        self._positions: dict[str, list[int]] = defaultdict(list)
        self._rows: dict[int, str] = {}

    def to(self, rows: Iterable[Row], last: int) -> tuple[list[Row], list[int]]:
        """The rows that came, to be numbered from `last + 1` on, and the positions that went."""
        left = {key: list(positions) for key, positions in self._positions.items()}
        came: list[Row] = []
        for row in rows:
            if staying := left.get(repr(row)):
                staying.pop(0)
            else:
                came.append(row)
        gone = sorted(position for positions in left.values() for position in positions)
        for position in gone:
            self._forget(position)
        for offset, row in enumerate(came):
            self._keep(row, last + 1 + offset)
        return came, gone

    def _keep(self, row: Row, position: int) -> None:
        self._positions[repr(row)].append(position)
        self._rows[position] = repr(row)

    def _forget(self, position: int) -> None:
        key = self._rows.pop(position)
        self._positions[key].remove(position)
        if not self._positions[key]:
            del self._positions[key]

    def again(self, changes: Iterable[tuple[Row, int | None]], last: int) -> None:
        """Takes changes made before, as (row, position that went): the first got `last + 1`."""
        for offset, (row, gone) in enumerate(changes):
            if gone is None:
                self._keep(row, last + 1 + offset)
            else:
                self._forget(gone)


def _add_to_log(log: Path, table: pa.Table) -> None:
    """Writes the version at once: a killed process leaves it whole or not at all, or its length
    shows that it is not whole.
    """
    buffer = io.BytesIO()
    with pa.ipc.new_stream(buffer, table.schema) as writer:
        writer.write_table(table)
    data = buffer.getvalue()
    with log.open("ab", buffering=0) as file:
        file.write(len(data).to_bytes(8, "little") + data)


def _read_log(log: Path) -> list[pa.Table]:
    data, versions = log.read_bytes(), []
    start = 0
    while start + 8 <= len(data):
        end = start + 8 + int.from_bytes(data[start : start + 8], "little")
        if end > len(data):
            break
        versions.append(pa.ipc.open_stream(data[start + 8 : end]).read_all())
        start = end
    if start < len(data):
        with log.open("r+b") as file:
            file.truncate(start)
    return versions


class TableIngest:
    """States: `waiting` → `running` → `failed` | `stopped`."""

    finite = False

    def __init__(
        self, table: TableDef, outlet: LiveOutlet[Any], reader: TableReader, log: Path | None
    ) -> None:
        """`log` keeps the versions, so that a killed site gives the same again."""
        self.table = table
        self.outlet = outlet
        self.state = "waiting"
        self.error: AnabranchError | None = None
        self.failed_at: float | None = None
        self._trouble = ""
        """Why nothing can be read at present."""
        self._reader = reader
        self._changes = RowChanges()
        self._log = log
        self._kept = _read_log(log) if log and log.exists() else []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"table-{table.name}", daemon=True)

    def resume(self, position: int) -> None:
        """Does nothing: its versions are all there, so nothing is to be skipped."""

    def start(self) -> None:
        """Starts to read, at the first call only: a table is read from when it first has a
        consumer.
        """
        if self.state == "waiting":
            self.state = "running"
            self._thread.start()

    def close(self) -> None:
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(timeout=10)
        self._reader.close()

    def report(self) -> SourceReport:
        return SourceReport(
            stream=self.table.name,
            site=self.table.site,
            state=self.state,
            finite=self.finite,
            error=self.error.report() if self.error else None,
            failed_at=self.failed_at,
            problem=self._trouble,
            rows=self.outlet.last,
            newest=None,
            late=0,
            skipped=0,
            shed=0,
            replayed=0,
            to_replay=0,
            rate=0.0,
        )

    def _run(self) -> None:
        try:
            if self._kept:
                self._again(self._kept)
            else:
                self._ship(self._content(), START_WATERMARK)
            self._follow()
            self.state = "stopped"
        except AnabranchError as error:
            self._fail(error)
        except Exception as error:
            self._fail(SourceError(f"{type(error).__name__}: {error}"))

    def _fail(self, error: AnabranchError) -> None:
        if self._stopped.is_set():
            return
        error.message = f"table {self.table.name}: {error.message}"
        self.state, self.error, self.failed_at = "failed", error, time.time()
        note("failed", error.line(), wrong=True, site=self.table.site, query=self.table.name)

    def _follow(self) -> None:
        """Ships changes, and in between promises that nothing changes."""
        promised = self._promise()
        if self._kept:  # what has changed while we were away
            self._ship(self._content(), promised)
        while not self._stopped.is_set():
            if self._reader.wait(self._stopped, LEAD_S / 2) and not self._stopped.is_set():
                self._ship(self._content(), promised)
            promised = self._promise()

    def _content(self) -> pa.Table:
        """The table's content. While the table is away it waits, and promises nothing. Raises
        SourceAway only once it must stop.
        """
        tries = 0
        while True:
            try:
                content = self._reader.read(self._stopped)
            except SourceAway as away:
                tries += 1
                self._trouble = away.line()
                if self._stopped.wait(AWAY.pause_s(tries, self.table.name)):
                    raise
            else:
                self._trouble = ""
                return content

    def _promise(self) -> int:
        """Promises readers that no version is stamped before this time, which it returns."""
        promised = time.time_ns() // 1000 + int(LEAD_S * 1e6)
        self.outlet.append([], promised)
        return promised

    def _ship(self, content: pa.Table, stamp: int) -> None:
        """Appends what has changed since the last version, if anything has."""
        rows = zip(*(column.to_pylist() for column in content.columns), strict=True)
        came, gone = self._changes.to(rows, self.outlet.last)
        now_us = time.time_ns() // 1000
        names = [column.name for column in self.table.columns]
        fixed = {"_ts": stamp, "_born": now_us}
        tuples = [dict(zip(names, row, strict=True)) | {GONE: None} | fixed for row in came]
        tuples += [dict.fromkeys(names) | {GONE: position} | fixed for position in gone]
        if tuples:
            table = pa.Table.from_pylist(tuples, self.outlet.schema)
            if self._log:
                _add_to_log(self._log, table)
            self.outlet.append(record_batches(table, PIECE_ROWS), stamp)

    def _again(self, versions: list[pa.Table]) -> None:
        """Gives the earlier versions again, at their positions."""
        for table in versions:
            values = table.select([column.name for column in self.table.columns])
            rows = zip(*(column.to_pylist() for column in values.columns), strict=True)
            changes = zip(rows, table.column(GONE).to_pylist(), strict=True)
            self._changes.again(changes, self.outlet.last)
            stamp = table.column("_ts")[0].as_py()
            self.outlet.append(record_batches(table, PIECE_ROWS), stamp)
