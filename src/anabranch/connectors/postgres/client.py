"""Connects to PostgreSQL, and puts its errors on one line without the password."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from anabranch.connectors.operator import check_file, environment_passwords
from anabranch.connectors.options import TEXT, Option
from anabranch.errors import ConfigError

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
            found = conninfo_to_dict(url)
        except psycopg.ProgrammingError as error:
            # libpq quotes the text, which may hold a password.
            raise ConfigError(
                f"{owner}() has a url that is none: {_first_line(error).split(':')[0]}",
                remedy="Give one such as 'postgresql://user:password@host:5432/database'.",
            ) from None
        if password:
            found["password"] = password
        libpq_may_look = trusted or environment_passwords()
        self._url = make_conninfo("", **found) if libpq_may_look else _closed(found, owner)
        if not trusted:
            for option in found.keys() & set(_FILES):
                if found[option] != "system":
                    check_file(owner, f"{option} of the url", str(found[option]))
        self._timeout = int(found.get("connect_timeout") or CONNECT_S)
        host = str(found.get("host") or found.get("hostaddr") or "localhost")
        name = found.get("dbname") or found.get("user") or ""
        self.place = f"{host}:{found.get('port') or 5432}/{name}"

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


def _closed(found: Mapping[str, Any], owner: str) -> str:
    """The connection string, with the password that stands in it and no other."""
    for option in _OF_THE_MACHINE:
        if option in found:
            raise ConfigError(
                f"{owner}() has {option} in its url, which is a file of the site's machine",
                remedy="Write CREATE SECRET and password = secret('…'); or have the operator set"
                " environment_passwords = true in [security].",
            )
    return make_conninfo(**{**_NOBODYS, **found})


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
