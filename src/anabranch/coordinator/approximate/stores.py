"""Where models are kept: a DuckDB file beside the catalog, or a PostgreSQL that outlives it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import duckdb
import psycopg

from anabranch.connectors.postgres.client import Database, reason
from anabranch.errors import SinkError

COLUMNS = ("run", "windows", "keys", "workers", "promise", "arrays")
_TABLE = """
CREATE TABLE IF NOT EXISTS {table} (
    query TEXT, version INTEGER, run TEXT, windows INTEGER, keys TEXT, workers TEXT,
    promise TEXT, arrays {bytes}, PRIMARY KEY (query, version))"""
_INSERT = (
    "INSERT INTO {table} SELECT {at}, coalesce(max(version), 0) + 1, {at}, {at}, {at}, {at}, {at},"
    " {at} FROM {table} WHERE query = {at} RETURNING version"
)
_NEWEST = (
    "SELECT version, run, windows, keys, workers, promise, arrays FROM {table} WHERE query = {at}"
    " ORDER BY version DESC LIMIT 1"
)
Row = tuple[Any, ...]


class Store(Protocol):
    """Rows of `COLUMNS` by query and version."""

    def save(self, query: str, row: Row) -> int:
        """The version under which it is kept."""

    def newest(self, query: str) -> Row | None:
        """Its version, and the row."""

    def close(self) -> None: ...


class FileStore:
    """The file is made when something is first saved."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db: duckdb.DuckDBPyConnection | None = None

    def save(self, query: str, row: Row) -> int:
        statement = _INSERT.format(table="model", at="?")
        found = self._open().execute(statement, [query, *row, query]).fetchone()
        assert found
        return int(found[0])

    def newest(self, query: str) -> Row | None:
        if not self._path.exists():
            return None
        return self._open().execute(_NEWEST.format(table="model", at="?"), [query]).fetchone()

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def _open(self) -> duckdb.DuckDBPyConnection:
        if self._db is None:
            self._db = duckdb.connect(str(self._path))
            self._db.execute(_TABLE.format(table="model", bytes="BLOB"))
        return self._db


class PostgresStore:
    """A connection each time: models are seldom asked for."""

    _NAME = "anabranch_model"

    def __init__(self, url: str) -> None:
        self._database = Database(url, "models", trusted=True)

    def save(self, query: str, row: Row) -> int:
        found = self._run(_INSERT, (query, *row, query))
        assert found
        return int(found[0])

    def newest(self, query: str) -> Row | None:
        return self._run(_NEWEST, (query,))

    def close(self) -> None:
        """Nothing is open."""

    def _run(self, statement: str, values: Row) -> Row | None:
        try:
            with closing(self._database.connect(autocommit=True)) as connection:
                # One after the other: two that create the table at once would fail.
                connection.execute("SELECT pg_advisory_lock(7200122)")
                connection.execute(_TABLE.format(table=self._NAME, bytes="BYTEA"))
                text = statement.format(table=self._NAME, at="%s")
                return connection.execute(text, values).fetchone()
        except psycopg.Error as error:
            place = self._database.place
            raise SinkError(reason(error), place=f"models in {place}") from error
