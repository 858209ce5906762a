"""Who may write a query's results into a table, and how far they are there.

A row per table and query in `anabranch_sink`, beside the table that the results go to. Whoever
opens a sink takes it; each transaction that writes results locks the row, looks whether it is still
its own, and notes the last position that it has written. So a writer that was paused, cut off or
replaced writes nothing any more, whenever it wakes up, and what is there is known without a look at
the results.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from anabranch.connectors.sink import behind, check_right, fenced, superseded
from anabranch.errors import SinkError

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


@dataclass(frozen=True)
class Held:
    """The row: who holds the fence, and the last position that is written. `holder` counts those
    who have held it."""

    run: str
    epoch: int
    holder: int
    position: int


class Fence:
    """Of `stream` in the table `target` of `schema`, for a writer of `run`."""

    def __init__(self, schema: str, target: str, stream: str, run: str) -> None:
        self.name = sql.Identifier(schema, NAME)
        self._row = sql.Literal(target), sql.Literal(stream)
        self._stream, self._run = stream, run
        self._held: Held | None = None

    def create(self, connection: psycopg.Connection[Any]) -> None:
        connection.execute(sql.SQL(_CREATE).format(self.name))

    def found(self, connection: psycopg.Connection[Any], *, lock: bool = False) -> Held | None:
        """What is there."""
        statement = sql.SQL(_READ + " FOR UPDATE" if lock else _READ)
        row = connection.execute(statement.format(self.name, *self._row)).fetchone()
        return Held(*row) if row else None

    def check_right(self, found: Held | None, epoch: int, *, resume: bool) -> None:
        """Fenced if somebody with a later right to write holds it."""
        check_right(self._stream, self._run, epoch, found, resume=resume)

    def end_others(self, connection: psycopg.Connection[Any], name: str) -> None:
        """Whoever wrote before may stand still in the middle of a transaction, with locks that
        nobody else gets. All of our connections for this table and query are called `name`."""
        connection.execute(_END_OTHERS, (name,))

    def take(
        self, connection: psycopg.Connection[Any], before: Held | None, epoch: int, position: int
    ) -> Held:
        """From now on nobody else writes; `before` is what `found` gave, locked."""
        holder = before.holder + 1 if before else 1
        values = self._run, epoch, holder, position
        statement = sql.SQL(_TAKE).format(self.name, *self._row, *values)
        connection.execute(statement)
        return Held(*values)

    def taken(self, held: Held) -> None:
        """`take` has been committed."""
        self._held = held

    @property
    def position(self) -> int:
        """The last one that is known to be written."""
        return self._held.position if self._held else 0

    def still(self, connection: psycopg.Connection[Any]) -> int:
        """The last position that is written, locked until the transaction ends. Fenced if another
        has taken the fence since, SinkBehind if the server has forgotten what it had committed."""
        held = self._held
        found = self.found(connection, lock=True)
        if held is None:
            raise SinkError("the sink is not open")
        if found is None or superseded(found.run, held.run):
            raise behind(0, held.position)
        if found.run == held.run and found.holder < held.holder:
            raise behind(found.position, held.position)
        if (found.run, found.holder) != (held.run, held.holder):
            raise fenced(self._stream, "another writes now")
        if found.position < held.position:
            raise behind(found.position, held.position)
        return found.position

    def note(self, connection: psycopg.Connection[Any], position: int) -> Held:
        """Of the transaction that writes up to there; to be given to `taken` once it is over."""
        connection.execute(sql.SQL(_NOTE).format(self.name, sql.Literal(position), *self._row))
        assert self._held
        return Held(self._held.run, self._held.epoch, self._held.holder, position)
