"""A sink's connection to PostgreSQL: each of its calls has a time limit, on both ends."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg import sql

from anabranch.connectors.postgres.client import Database, is_passing, reason
from anabranch.errors import SinkAway, SinkError

T = TypeVar("T")
_HOLDER = """
    SELECT a.pid, a.application_name, a.state, extract(epoch FROM now() - a.xact_start)::int
    FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid)
    WHERE l.relation IN (SELECT to_regclass(name)::oid FROM unnest(%s::text[]) AS name)
      AND l.granted AND l.mode <> 'AccessShareLock' AND a.pid <> pg_backend_pid()
    ORDER BY a.xact_start LIMIT 1"""
_STATEMENTS = 4
"""A statement may take so many times as long as a lock: it may have much to write."""
_KEEPALIVES = {"tcp_keepalives_idle": 10, "tcp_keepalives_interval": 5, "tcp_keepalives_count": 3}


class Session:
    """One connection, opened again after it was lost. `limit_s` is how long a lock, a silent
    network or an idle transaction may last; a statement may take four times as long.
    """

    def __init__(self, database: Database, name: str, limit_s: float) -> None:
        """`name` is what the server calls the connection."""
        self._database = database
        self.name = name
        self.tables: list[str] = []
        """What it locks, as SQL names it."""
        self._limit_s = max(limit_s, 0.1)
        self._connection: psycopg.Connection[Any] | None = None
        self._abandoned = False

    def transaction(self, work: Callable[[psycopg.Connection[Any]], T]) -> T:
        """Does all of `work` or nothing. After SinkAway nobody knows which, if the connection was
        lost during the commit. Raises SinkError for what would fail again.
        """
        try:
            if self._connection is None or self._connection.closed:
                self._connection = self._connected()
            if self._abandoned:
                raise SinkAway("nobody waits for it any more", place=self._database.place)
            with self._watched(self._connection), self._connection.transaction():
                return work(self._connection)
        except psycopg.Error as error:
            who = self._holder() if isinstance(error, psycopg.errors.LockNotAvailable) else ""
            passes = is_passing(error)
            if passes:
                self.close()
            raise self.failed(error, passes=passes, who=who) from error

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error):
                connection.close()

    def abandon(self) -> None:
        """Called from another thread; does not wait. The running statement ends by an error, no
        other begins, and what is not committed by now never is.
        """
        self._abandoned = True
        if (connection := self._connection) is not None:
            with contextlib.suppress(psycopg.Error):
                _cut_off(connection.fileno())

    def failed(self, error: psycopg.Error, *, passes: bool, who: str = "") -> SinkError:
        kind = SinkAway if passes else SinkError
        return kind(f"{reason(error)}{who}", place=self._database.place)

    def _connected(self) -> psycopg.Connection[Any]:
        limit_ms = int(self._limit_s * 1000)
        connection = self._database.connect(
            application_name=self.name,
            keepalives=1,
            keepalives_idle=10,
            keepalives_interval=5,
            keepalives_count=3,
            tcp_user_timeout=limit_ms,
        )
        settings = _KEEPALIVES | {
            "tcp_user_timeout": limit_ms,
            "lock_timeout": limit_ms,
            "idle_in_transaction_session_timeout": limit_ms,
            "statement_timeout": _STATEMENTS * limit_ms,
        }
        for name, value in settings.items():
            connection.execute(sql.SQL("SET {} = {}").format(sql.Identifier(name), value))
        connection.commit()
        return connection

    @contextmanager
    def _watched(self, connection: psycopg.Connection[Any]) -> Iterator[None]:
        """Cuts the connection off if the server hangs, a little after the server itself would have
        given up. A hanging server says nothing, though its machine answers.
        """
        descriptor = connection.fileno()
        limit = (_STATEMENTS + 1) * self._limit_s
        guard = threading.Timer(limit, _cut_off, (descriptor,))
        guard.daemon = True
        guard.start()
        try:
            yield
        finally:
            guard.cancel()

    def _holder(self) -> str:
        """Who has the lock that was waited for in vain, as far as the server says."""
        with contextlib.suppress(psycopg.Error), contextlib.closing(self._connected()) as other:
            return _holder(other, self.tables)
        return ""


def _holder(connection: psycopg.Connection[Any], tables: list[str]) -> str:
    found = connection.execute(_HOLDER, (tables,)).fetchone()
    if found is None:
        return ""
    pid, name, state, seconds = found
    return f": process {pid} ({name or 'without a name'}, {state} for {seconds} s) has it locked"


def _cut_off(descriptor: int) -> None:
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as same:
        same.shutdown(socket.SHUT_RDWR)
