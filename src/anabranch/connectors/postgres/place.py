"""Where results go: a table, and beside it a row in `anabranch_sink` that says who writes and
how far they are.

There is one row per table and query. Opening a sink takes the row. Each transaction that writes
results locks it, checks that it is still its own, and notes the last position that it has written.
So a writer that was paused, cut off or replaced writes nothing more, whenever it wakes up, and the
last position is known without a look at the results.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import psycopg
import pyarrow as pa
from psycopg import sql

from anabranch.connectors.postgres.client import Database, SinkSession
from anabranch.connectors.postgres.sink_table import PresentTable, ResultTable
from anabranch.connectors.sink import behind, check_right, fenced, superseded
from anabranch.errors import SinkError


@dataclass(frozen=True)
class FenceRow:
    """The row: who holds the fence, and the last position that is written. `holder` counts the
    holders.
    """

    run: str
    epoch: int
    holder: int
    position: int


class Fence:
    """Decides by the row of `stream`, for a writer of `run`."""

    def __init__(self, stream: str, run: str) -> None:
        self._stream, self._run = stream, run
        self._held: FenceRow | None = None

    def check_right(self, row: FenceRow | None, epoch: int, *, resume: bool) -> None:
        """Raises Fenced if a holder has a later right to write."""
        check_right(self._stream, self._run, epoch, row, resume=resume)

    def takes(self, before: FenceRow | None, epoch: int, position: int) -> FenceRow:
        """The row once we have taken it; `before` is what it was."""
        return FenceRow(self._run, epoch, before.holder + 1 if before else 1, position)

    def taken(self, held: FenceRow) -> None:
        """Notes that the transaction which wrote this row is committed."""
        self._held = held

    @property
    def position(self) -> int:
        """The last position that is known to be written."""
        return self._open.position

    @property
    def _open(self) -> FenceRow:
        if self._held is None:
            raise SinkError("the sink is not open")
        return self._held

    def still(self, row: FenceRow | None) -> int:
        """The last position that is written. Raises Fenced if another writer has taken the fence
        since, and SinkBehind if the server has lost what it had committed.
        """
        held = self._open
        if row is None or superseded(row.run, held.run):
            raise behind(0, held.position)
        if row.run == held.run and row.holder < held.holder:
            raise behind(row.position, held.position)
        if (row.run, row.holder) != (held.run, held.holder):
            raise fenced(self._stream, "another writes now")
        if row.position < held.position:
            raise behind(row.position, held.position)
        return row.position

    def noted(self, position: int) -> FenceRow:
        """The row of a transaction that writes up to `position`."""
        return replace(self._open, position=position)


NAME = "anabranch_sink"
_CREATE = """
    CREATE TABLE IF NOT EXISTS {} (
      target text NOT NULL, stream text NOT NULL, run text NOT NULL, epoch bigint NOT NULL,
      holder bigint NOT NULL, position bigint NOT NULL, PRIMARY KEY (target, stream))"""
_READ = "SELECT run, epoch, holder, position FROM {} WHERE target = {} AND stream = {}"
_TAKE = """
    INSERT INTO {} (target, stream, run, epoch, holder, position) VALUES ({}, {}, {}, {}, {}, {})
    ON CONFLICT (target, stream) DO UPDATE SET (run, epoch, holder, position) =
      (excluded.run, excluded.epoch, excluded.holder, excluded.position)"""
_NOTE = "UPDATE {} SET position = {} WHERE target = {} AND stream = {}"
_END_OTHERS = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE application_name = %s AND datname = current_database() AND usename = current_user
      AND pid <> pg_backend_pid()"""
T = TypeVar("T")


class SinkTransaction(Protocol):
    """What a sink does within one transaction. If the server is away, calls raise SinkAway."""

    def check(self) -> None:
        """Raises SinkError unless the table is as it must be, or can be made or changed."""

    def create(self) -> None:
        """Creates the table of results, and the table of such rows, unless they exist."""

    def count(self) -> int:
        """The number of rows of the query, whatever run wrote them."""

    def found(self, *, lock: bool = False) -> FenceRow | None:
        """The row, after `create`; with `lock` it is locked until the transaction ends."""

    def end_others(self) -> None:
        """Ends the transactions of earlier writers: one may stand still in the middle of its
        transaction, with locks that nobody else gets.
        """

    def take(self, held: FenceRow) -> None:
        """Replaces the row by this one."""

    def note(self, held: FenceRow) -> None:
        """Writes this position into the row, which stays ours."""

    def clear(self) -> None:
        """Deletes the query's rows."""

    def adopt(self) -> int:
        """Gives rows from before there were runs to this run; returns the run's last position."""

    def insert(self, rows: pa.Table) -> None:
        """Inserts the rows, none of which is there yet."""


class TablePlace(Protocol):
    def transaction(self, work: Callable[[SinkTransaction], T]) -> T:
        """Does all of `work` or nothing. After SinkAway nobody knows which, if the connection was
        lost during the commit. Raises SinkError for what would fail again.
        """

    def close(self) -> None:
        """Closes the connection. The place may be used again."""

    def abandon(self) -> None:
        """Called from another thread; does not wait. The running call ends by an error, and what is
        not committed by now never is.
        """


class DatabasePlace:
    """The place of the query `stream` and its `run`, in a database."""

    def __init__(
        self, database: Database, session: SinkSession, table: ResultTable, stream: str, run: str
    ) -> None:
        self.database = database
        self.session = session
        self.table = table
        self.stream, self.run = stream, run
        self.fence: sql.Identifier | None = None
        """The table with the row, once we have looked in which schema it is."""
        self.row: tuple[sql.Literal, sql.Literal] | None = None
        session.tables = [table.quoted]

    def transaction(self, work: Callable[[SinkTransaction], T]) -> T:
        return self.session.transaction(lambda made: work(DatabaseTransaction(self, made)))

    def close(self) -> None:
        self.session.close()

    def abandon(self) -> None:
        self.session.abandon()

    def is_in(self, table: PresentTable) -> sql.Identifier:
        """The name of the row's table, in the schema of the table of results."""
        self.fence = sql.Identifier(table.schema, NAME)
        self.row = sql.Literal(table.name), sql.Literal(self.stream)
        self.session.tables = [self.table.quoted, self.fence.as_string(None)]
        return self.fence


class DatabaseTransaction:
    def __init__(self, place: DatabasePlace, connection: psycopg.Connection[Any]) -> None:
        self._place = place
        self._connection = connection

    def check(self) -> None:
        self._place.table.check(self._connection, self._place.database.place)

    def create(self) -> None:
        self.check()
        fence = self._place.is_in(self._place.table.create(self._connection))
        self._connection.execute(sql.SQL(_CREATE).format(fence))

    def count(self) -> int:
        return self._place.table.count(self._connection, self._place.stream)

    def found(self, *, lock: bool = False) -> FenceRow | None:
        target, stream = self._row()
        statement = sql.SQL(_READ + " FOR UPDATE" if lock else _READ)
        query = statement.format(self._place.fence, target, stream)
        row = self._connection.execute(query).fetchone()
        return FenceRow(*row) if row else None

    def end_others(self) -> None:
        self._connection.execute(_END_OTHERS, (self._place.session.name,))

    def take(self, held: FenceRow) -> None:
        values = map(sql.Literal, (held.run, held.epoch, held.holder, held.position))
        self._connection.execute(sql.SQL(_TAKE).format(self._place.fence, *self._row(), *values))

    def note(self, held: FenceRow) -> None:
        position = sql.Literal(held.position)
        self._connection.execute(sql.SQL(_NOTE).format(self._place.fence, position, *self._row()))

    def clear(self) -> None:
        self._place.table.clear(self._connection, self._place.stream)

    def adopt(self) -> int:
        return self._place.table.adopt(self._connection, self._place.stream, self._place.run)

    def insert(self, rows: pa.Table) -> None:
        self._place.table.insert(self._connection, self._place.stream, self._place.run, rows)

    def _row(self) -> tuple[sql.Literal, sql.Literal]:
        assert self._place.row
        return self._place.row
