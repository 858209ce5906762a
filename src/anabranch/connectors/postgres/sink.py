"""Writes results as rows of a PostgreSQL table."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import ClassVar, TypeVar

import numpy as np
import pyarrow as pa

from anabranch.connectors.options import DURATION, TEXT, Option, take
from anabranch.connectors.postgres.client import PASSWORD, URL, Database, SinkSession, database_of
from anabranch.connectors.postgres.place import (
    DatabasePlace,
    Fence,
    FenceRow,
    SinkTransaction,
    TablePlace,
)
from anabranch.connectors.postgres.sink_table import ResultTable, of_an_earlier_query
from anabranch.connectors.sink import ANEW, Beginning, Sink, SinkContext
from anabranch.errors import SinkAway
from anabranch.runtime.loop import REAL_TIME, ThreadTime

_PAUSES_S = (0.05, 0.5)
"""Between two attempts to connect, from the first to the longest."""
_AGAIN_S = 2.0
"""A connection that was lost is made anew for so long. A server that is away for longer is waited
for by whoever writes, who says so."""
MODES = ("append", "replace")
MODE = Option(
    "mode", TEXT, "what becomes of rows that an earlier query of this name wrote", choices=MODES
)
_TELL = (
    "Add mode = 'append' to keep them, told apart by the column _run, or mode = 'replace' to"
    " delete them."
)
T = TypeVar("T")


class PostgresSink(Sink):
    """Each table is one transaction, which checks the right to write and notes the last position.
    Rows that are there already are not written again.
    """

    resumable = True
    shared = True
    options: ClassVar[tuple[Option, ...]] = (
        URL,
        PASSWORD,
        Option("table", TEXT, "'table' or 'schema.table'; made if it is missing", required=True),
        MODE,
        Option(
            "retry",
            DURATION,
            "how long a lock or a server that is silent is waited for at a time",
            30_000_000,
        ),
    )

    def __init__(
        self, context: SinkContext, place: TablePlace | None = None, time: ThreadTime = REAL_TIME
    ) -> None:
        """`place` replaces the table that the options name."""
        chosen = take("postgres", self.options, context.options)
        self._context = context
        self._resume = context.resume
        self._mode: str | None = chosen["mode"]
        self._retry_s: float = chosen["retry"] / 1e6
        self._table: str = chosen["table"]
        self._place = place or self._of_database(database_of(chosen))
        self._time = time
        self._fence = Fence(context.query, context.run)
        self._closed = time.event()
        self._check()

    def _of_database(self, database: Database) -> TablePlace:
        context = self._context
        name = f"anabranch {_short(self._table)} {_short(context.query)}"
        session = SinkSession(database, name, self._retry_s)
        table = ResultTable(self._table, context.schema, context.once)
        return DatabasePlace(database, session, table, context.query, context.run)

    def _check(self) -> None:
        """Checks the table. A query that goes on after a failure need not find the server there: it
        waits.
        """
        try:
            self._place.transaction(lambda made: made.check())
        except SinkAway as away:
            if not self._resume:
                away.remedy = "Check the url, and that the server runs."
                raise
        finally:
            self._place.close()

    def check_new(self) -> str:
        if self._context.once:
            return ""  # the coordinator looks at all streams of the query
        try:
            rows = self._place.transaction(lambda made: made.count())
        finally:
            self._place.close()
        if not rows:
            return ""
        query = self._context.query
        named = f"{rows:,} {'row' if rows == 1 else 'rows'} of an earlier query {query}"
        if self._mode is None:
            raise of_an_earlier_query(self._table, named, _TELL)
        fate = "stay, and other rows bear another _run" if self._mode == "append" else "are deleted"
        return f"{named} in the table {self._table} {fate}"

    def open(self, begin: Beginning = ANEW) -> None:
        self._closed.clear()
        self._attempt(lambda made: made.create())
        self._attempt(lambda made: self._look(made, begin))
        self._fence.taken(self._attempt(lambda made: self._take(made, begin)))

    def _look(self, transaction: SinkTransaction, begin: Beginning) -> None:
        """Checks the right to write before it waits for anything, so that a writer without the
        right disturbs nobody.
        """
        self._fence.check_right(transaction.found(), begin.epoch, resume=self._resume)
        transaction.end_others()

    def _take(self, transaction: SinkTransaction, begin: Beginning) -> FenceRow:
        before = transaction.found(lock=True)
        self._fence.check_right(before, begin.epoch, resume=self._resume)
        position = begin.goes_on_after(self._goes_on(transaction, before))
        held = self._fence.takes(before, begin.epoch, position)
        transaction.take(held)
        return held

    def _goes_on(self, transaction: SinkTransaction, before: FenceRow | None) -> int:
        """The last position that is there already, for a query that goes on."""
        if not self._resume:
            if self._mode == "replace":
                transaction.clear()
            return 0
        if before is None:
            return transaction.adopt()
        return before.position if before.run == self._context.run else 0

    def written(self) -> int:
        return self._fence.position

    def write(self, table: pa.Table) -> None:
        if table.num_rows:
            self._fence.taken(self._attempt(lambda made: self._write(made, table)))

    def _write(self, transaction: SinkTransaction, table: pa.Table) -> FenceRow:
        """Writes the rows that are not there yet: an earlier attempt may have been committed though
        its answer was lost.
        """
        held = self._fence.still(transaction.found(lock=True))
        positions = table.column("_pos").to_numpy()
        table = table.slice(int(np.searchsorted(positions, held, side="right")))
        if table.num_rows:
            transaction.insert(table)
        noted = self._fence.noted(max(held, int(positions[-1])))
        transaction.note(noted)
        return noted

    def close(self) -> None:
        """Closes the connection, and ends waiting for a lost one. Every write is complete in
        itself.
        """
        self._closed.set()
        self._place.close()

    def abandon(self) -> None:
        self._closed.set()
        self._place.abandon()

    def _attempt(self, work: Callable[[SinkTransaction], T]) -> T:
        """Does all of `work` or nothing. Failures that may go away are tried again for a while;
        then SinkAway is raised.
        """
        deadline = self._time.monotonic() + _AGAIN_S
        pause = _PAUSES_S[0]
        while True:
            try:
                return self._place.transaction(work)
            except SinkAway:
                if self._time.monotonic() + pause > deadline or self._closed.wait(pause):
                    raise
                pause = min(2 * pause, _PAUSES_S[1])


def _short(text: str) -> str:
    """The name, cut to the 63 bytes that PostgreSQL allows."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
