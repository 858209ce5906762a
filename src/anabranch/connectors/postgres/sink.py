"""Results as rows of a PostgreSQL table."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import numpy as np
import psycopg
import pyarrow as pa

from anabranch.connectors.options import DURATION, TEXT, Option, take
from anabranch.connectors.postgres.client import URL, Database
from anabranch.connectors.postgres.fence import Fence, Held
from anabranch.connectors.postgres.session import Session
from anabranch.connectors.postgres.sink_table import Found, ResultTable, of_an_earlier_query
from anabranch.connectors.sink import ANEW, Beginning, Sink, SinkContext
from anabranch.errors import SinkAway, SinkError

_PAUSES_S = (0.05, 2.0)
"""Between two attempts to connect, from the first to the longest."""
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
    """Each table is one transaction, in which the writer's right to write is checked and the last
    position noted. What is there already is not written again."""

    resumable = True
    shared = True
    options: ClassVar[tuple[Option, ...]] = (
        URL,
        Option("table", TEXT, "'table' or 'schema.table'; made if it is missing", required=True),
        MODE,
        Option("retry", DURATION, "how long a lock or a lost connection is waited for", 30_000_000),
    )

    def __init__(self, context: SinkContext) -> None:
        chosen = take("postgres", self.options, context.options)
        self._context = context
        self._stream, self._run, self._resume = context.query, context.run, context.resume
        self._mode: str | None = chosen["mode"]
        self._retry_s: float = chosen["retry"] / 1e6
        self._database = Database(chosen["url"], "postgres")
        self._table = ResultTable(chosen["table"], context.schema, context.once)
        name = f"anabranch {_short(chosen['table'])} {_short(self._stream)}"
        self._session = Session(self._database, name, self._retry_s)
        self._session.tables = [self._table.quoted]
        self._name = name
        self._fence: Fence | None = None
        self._closed = threading.Event()
        self._check()

    def _check(self) -> None:
        """What goes on need not find the server there: it waits until it is."""
        try:
            self._session.transaction(lambda made: self._table.check(made, self._database.place))
        except SinkAway as away:
            if not self._resume:
                away.remedy = "Check the url, and that the server runs."
                raise
        finally:
            self._session.close()

    def check_new(self) -> str:
        if self._context.once:
            return ""  # the coordinator looks at all streams of the query
        try:
            rows = self._session.transaction(lambda made: self._table.count(made, self._stream))
        finally:
            self._session.close()
        if not rows:
            return ""
        named = f"{rows:,} {'row' if rows == 1 else 'rows'} of an earlier query {self._stream}"
        if self._mode is None:
            raise of_an_earlier_query(self._table.text, named, _TELL)
        fate = "stay, and other rows bear another _run" if self._mode == "append" else "are deleted"
        return f"{named} in the table {self._table.text} {fate}"

    def open(self, begin: Beginning = ANEW) -> None:
        self._closed.clear()
        found = self._attempt(self._create)
        self._fence = Fence(found.schema, found.name, self._stream, self._run)
        self._session.tables = [self._table.quoted, self._fence.name.as_string(None)]
        self._attempt(lambda made: self._look(made, begin))
        self._fence.taken(self._attempt(lambda made: self._take(made, begin)))

    def _create(self, connection: psycopg.Connection[Any]) -> Found:
        self._table.check(connection, self._database.place)
        found = self._table.create(connection)
        Fence(found.schema, found.name, self._stream, self._run).create(connection)
        return found

    def _look(self, connection: psycopg.Connection[Any], begin: Beginning) -> None:
        """Before anything is waited for: whoever has no right to write disturbs nobody."""
        fence = self._opened()
        fence.check_right(fence.found(connection), begin.epoch, resume=self._resume)
        fence.end_others(connection, self._name)

    def _take(self, connection: psycopg.Connection[Any], begin: Beginning) -> Held:
        fence = self._opened()
        before = fence.found(connection, lock=True)
        fence.check_right(before, begin.epoch, resume=self._resume)
        position = self._goes_on(connection, before)
        if begin.accept_loss:
            position = max(position, begin.after)
        return fence.take(connection, before, begin.epoch, position)

    def _goes_on(self, connection: psycopg.Connection[Any], before: Held | None) -> int:
        """The last position that is there already."""
        if not self._resume:
            if self._mode == "replace":
                self._table.clear(connection, self._stream)
            return 0
        if before is None:
            return self._table.adopt(connection, self._stream, self._run)
        return before.position if before.run == self._run else 0

    def written(self) -> int:
        return self._opened().position

    def write(self, table: pa.Table) -> None:
        if table.num_rows:
            self._opened().taken(self._attempt(lambda made: self._write(made, table)))

    def _write(self, connection: psycopg.Connection[Any], table: pa.Table) -> Held:
        """Those that are not there yet: the commit of an attempt before may have been lost only on
        its way back."""
        fence = self._opened()
        held = fence.still(connection)
        positions = table.column("_pos").to_numpy()
        table = table.slice(int(np.searchsorted(positions, held, side="right")))
        if table.num_rows:
            self._table.insert(connection, self._stream, self._run, table)
        return fence.note(connection, max(held, int(positions[-1])))

    def close(self) -> None:
        """Every write is complete in itself. Ends waiting for a lost connection, too."""
        self._closed.set()
        self._session.close()

    def abandon(self) -> None:
        self._closed.set()
        self._session.abandon()

    def _opened(self) -> Fence:
        if self._fence is None:
            raise SinkError("the sink is not open")
        return self._fence

    def _attempt(self, work: Callable[[psycopg.Connection[Any]], T]) -> T:
        """All of `work` or nothing. What passes is tried again for a while, then it is SinkAway."""
        deadline = time.monotonic() + self._retry_s
        pause = _PAUSES_S[0]
        while True:
            try:
                return self._session.transaction(work)
            except SinkAway as away:
                if time.monotonic() + pause > deadline or self._closed.wait(pause):
                    away.remedy = f"It was tried for {self._retry_s:g} s."
                    raise
                pause = min(2 * pause, _PAUSES_S[1])


def _short(text: str) -> str:
    """A name of PostgreSQL's has 63 bytes at most."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
