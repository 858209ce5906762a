"""Connecting to PostgreSQL, and its errors in one line without the password."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from anabranch.connectors.options import TEXT, Option
from anabranch.errors import ConfigError

URL = Option(
    "url", TEXT, "the database: 'postgresql://user:password@host:5432/database'", required=True
)
CONNECT_S = 5
"""How long a server may take to answer."""


class Database:
    """Where to connect. `place` names it in messages."""

    def __init__(self, url: str, owner: str) -> None:
        try:
            found = conninfo_to_dict(url)
        except psycopg.ProgrammingError as error:
            # libpq quotes the text, which may hold a password.
            raise ConfigError(
                f"{owner}() has a url that is none: {_first_line(error).split(':')[0]}",
                remedy="Give one such as 'postgresql://user:password@host:5432/database'.",
            ) from None
        self._url = url
        self._timeout = int(found.get("connect_timeout") or CONNECT_S)
        host = str(found.get("host") or found.get("hostaddr") or "localhost")
        name = found.get("dbname") or found.get("user") or ""
        self.place = f"{host}:{found.get('port') or 5432}/{name}"

    def connect(self, **more: Any) -> psycopg.Connection[Any]:
        """Raises psycopg.OperationalError. Times are UTC, whatever the server thinks."""
        connection = psycopg.connect(
            self._url, connect_timeout=self._timeout, application_name="anabranch", **more
        )
        connection.execute("SET TIME ZONE 'UTC'")
        if not connection.autocommit:
            connection.commit()
        return connection


def table_name(text: str) -> sql.Identifier:
    """`table` or `schema.table`, each part exactly as written."""
    return sql.Identifier(*text.split(".", 1))


def reason(error: psycopg.Error) -> str:
    """PostgreSQL's own words, its hint behind them; the first line of anything else."""
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
