"""Connecting to PostgreSQL, with errors in one line without the password. No call of a sink
waits without a limit, on either end.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from anabranch.connectors.operator import check_file, environment_passwords
from anabranch.connectors.options import TEXT, Option
from anabranch.errors import ConfigError, SinkAway, SinkError

URL = Option(
    "url", TEXT, "the database: 'postgresql://user:password@host:5432/database'", required=True
)
PASSWORD = Option("password", TEXT, "the password, as in secret('name'), if not in the url")
CONNECT_S = 5
"""How long a server may take to answer."""

_PASSING = ("08", "40", "53", "57", "58")
"""Classes of errors: connection, roll-back, resources, intervention by an operator, system."""
_PASSING_STATES = ("55P03", "25P03", "25006")
"""A lock that is not available, a transaction that did nothing, a server that only reads: a replica
before it is promoted."""
_NOT_YET = ("starting up", "shutting down", "recovery", "too many", "connection slots", "not yet")


_NOBODYS = {"password": "", "passfile": "/dev/null/none"}
"""Instead of PGPASSWORD and ~/.pgpass, which libpq would send to any host that it is told."""
_OF_THE_MACHINE = ("passfile", "service")
_FILES = ("sslcert", "sslkey", "sslrootcert", "sslcrl", "sslcrldir")


class Database:
    """A database to connect to. `place` names it in messages."""

    def __init__(
        self, url: str, owner: str, *, password: str | None = None, trusted: bool = False
    ) -> None:
        """`trusted` means that the operator gave the address, so libpq may look for the
        password.
        """
        try:
            settings = conninfo_to_dict(url)
        except psycopg.ProgrammingError as error:
            # libpq quotes the text, which may hold a password.
            raise ConfigError(
                f"{owner}() has a url that is none: {_first_line(error).split(':')[0]}",
                remedy="Give one such as 'postgresql://user:password@host:5432/database'.",
            ) from None
        if password:
            settings["password"] = password
        libpq_may_look = trusted or environment_passwords()
        self._url = make_conninfo("", **settings) if libpq_may_look else _closed(settings, owner)
        if not trusted:
            for option in settings.keys() & set(_FILES):
                if settings[option] != "system":
                    check_file(owner, f"{option} of the url", str(settings[option]))
        self._timeout = int(settings.get("connect_timeout") or CONNECT_S)
        host = str(settings.get("host") or settings.get("hostaddr") or "localhost")
        name = settings.get("dbname") or settings.get("user") or ""
        self.place = f"{host}:{settings.get('port') or 5432}/{name}"

    def connect(self, **more: Any) -> psycopg.Connection[Any]:
        """A new connection. Raises psycopg.OperationalError. Times are UTC, whatever the server's
        setting.
        """
        settings: dict[str, Any] = {
            "connect_timeout": self._timeout,
            "application_name": "anabranch",
        } | more
        connection = psycopg.connect(self._url, **settings)
        connection.execute("SET TIME ZONE 'UTC'")
        if not connection.autocommit:
            connection.commit()
        return connection


def database_of(options: Mapping[str, Any]) -> Database:
    """The database of a sink or table, whose options say where it is."""
    return Database(str(options["url"]), "postgres", password=options.get("password"))


def _closed(settings: Mapping[str, Any], owner: str) -> str:
    """The connection string, with the password that stands in it and no other."""
    for option in _OF_THE_MACHINE:
        if option in settings:
            raise ConfigError(
                f"{owner}() has {option} in its url, which is a file of the site's machine",
                remedy="Write CREATE SECRET and password = secret('…'); or have the operator set"
                " environment_passwords = true in [security].",
            )
    return make_conninfo(**{**_NOBODYS, **settings})


def is_passing(error: psycopg.Error) -> bool:
    """Whether the error's cause may go away by itself: the server is away, starts, stops, is full
    or busy.
    """
    state = error.sqlstate
    if state is not None:
        return state[:2] in _PASSING or state in _PASSING_STATES
    if not isinstance(error, psycopg.OperationalError):
        return False
    text = str(error)  # a connection that was refused has a text only
    return "FATAL" not in text or any(word in text for word in _NOT_YET)


def table_name(text: str) -> sql.Identifier:
    """`table` or `schema.table`, each part exactly as written."""
    return sql.Identifier(*text.split(".", 1))


def reason(error: psycopg.Error) -> str:
    """PostgreSQL's own words, followed by its hint; for any other error the first line."""
    primary = error.diag.message_primary
    if not primary:
        return _first_line(error)
    detail = error.diag.message_detail or error.diag.message_hint
    return f"{primary} ({detail.rstrip('.')})" if detail else primary


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    # "connection failed: connection to server at "127.0.0.1", port 1 failed: Connection refused"
    return text.rpartition(" failed: ")[2] if " failed: " in text else text


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


class SinkSession:
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
    row = connection.execute(_HOLDER, (tables,)).fetchone()
    if row is None:
        return ""
    pid, name, state, seconds = row
    return f": process {pid} ({name or 'without a name'}, {state} for {seconds} s) has it locked"


def _cut_off(descriptor: int) -> None:
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as same:
        same.shutdown(socket.SHUT_RDWR)
