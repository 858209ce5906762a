"""Access to the global database: PostgreSQL, or a DuckDB file that processes share.

A file is opened for each transaction and closed after it, since DuckDB lets one process have it at
a time: a server that finds it taken tries again. That is enough for servers of one machine, which
save once in a while.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import duckdb
import psycopg
import pyarrow as pa

from anabranch.connectors.postgres.client import Database, reason
from anabranch.connectors.postgres.sink_table import copy_text, postgres_type
from anabranch.errors import SiteError, TaskError

TAKEN_S = 30.0
"""For so long it is tried to open a file that another process has open."""
TRY_S = 0.01
Rows = list[tuple[Any, ...]]


class Session(Protocol):
    """One transaction. Values go in place of `?`."""

    def lock(self) -> None:
        """Takes the lock, which nobody else gets until this transaction ends."""

    def run(self, text: str, values: Sequence[Any] = ()) -> Rows: ...
    def create(self, table: str, columns: pa.Schema) -> None:
        """Creates the table unless it exists."""

    def append(self, table: str, rows: pa.Table) -> None: ...
    def read(self, query: str, columns: pa.Schema) -> pa.Table: ...


class DatabaseLocation(Protocol):
    """The place of the database. If it cannot be reached, calls raise SiteError."""

    locking: str
    """What a SELECT needs behind it so that others wait until this transaction ends."""

    def transaction(self, *, one_moment: bool = False) -> Any:
        """A context with a Session. Its changes hold at its end, all or nothing. All that it reads
        can be of `one_moment`.
        """


def place_of(url: str) -> DatabaseLocation:
    return PostgresPlace(url) if "://" in url or "=" in url else FilePlace(Path(url))


class PostgresPlace:
    locking = "FOR UPDATE"

    def __init__(self, url: str) -> None:
        self._database = Database(url, "STAGE")

    @contextmanager
    def transaction(self, *, one_moment: bool = False) -> Iterator[Session]:
        try:
            with self._database.connect() as db:
                if one_moment:
                    db.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                yield _PostgresSession(db)
        except psycopg.OperationalError as error:
            raise SiteError(
                f"the global database is away ({reason(error)})", place=self._database.place
            ) from error
        except psycopg.Error as error:
            raise TaskError(reason(error), place=self._database.place) from error


class _PostgresSession:
    def __init__(self, db: psycopg.Connection[Any]) -> None:
        self._db = db

    def lock(self) -> None:
        self._db.execute("SELECT pg_advisory_xact_lock(hashtext('anabranch_stages'))")

    def run(self, text: str, values: Sequence[Any] = ()) -> Rows:
        cursor = self._db.execute(text.replace("?", "%s").encode(), values)
        return cursor.fetchall() if cursor.description else []

    def create(self, table: str, columns: pa.Schema) -> None:
        declared = ", ".join(f'"{one.name}" {_postgres_column(one)}' for one in columns)
        self.run(f"CREATE TABLE IF NOT EXISTS {table} ({declared})")

    def append(self, table: str, rows: pa.Table) -> None:
        if not len(rows):
            return
        command = f"COPY {table} FROM STDIN (FORMAT csv)"
        with self._db.cursor() as cursor, cursor.copy(command.encode()) as to:
            to.write(bytes(copy_text(rows)))

    def read(self, query: str, columns: pa.Schema) -> pa.Table:
        rows = self.run(query)
        values = list(zip(*rows, strict=True)) or [()] * len(columns)
        arrays = [pa.array(some, one.type) for some, one in zip(values, columns, strict=True)]
        return pa.Table.from_arrays(arrays, schema=columns)


def _postgres_column(field: pa.Field) -> str:
    type_ = postgres_type(field.name, field.type)
    # The least and the greatest text are those by bytes, as everywhere else.
    return f'{type_} COLLATE "C"' if type_ == "text" else type_


class FilePlace:
    locking = ""

    def __init__(self, path: Path) -> None:
        self._path = path

    @contextmanager
    def transaction(self, *, one_moment: bool = False) -> Iterator[Session]:
        db = self._open()
        try:
            db.execute("BEGIN")
            yield _FileSession(db)
            db.execute("COMMIT")
        except duckdb.IOException as error:
            raise SiteError(f"the global database failed ({_line(error)})") from error
        finally:
            db.close()

    def _open(self) -> duckdb.DuckDBPyConnection:
        deadline = time.monotonic() + TAKEN_S
        while True:
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                return duckdb.connect(str(self._path))
            except (duckdb.IOException, duckdb.ConnectionException, OSError) as error:
                if time.monotonic() > deadline:
                    raise SiteError(
                        f"the global database cannot be opened ({_line(error)})",
                        place=str(self._path),
                    ) from error
            time.sleep(TRY_S)


class _FileSession:
    def __init__(self, db: duckdb.DuckDBPyConnection) -> None:
        self._db = db

    def lock(self) -> None:
        """Does nothing: the file is open here, and nowhere else."""

    def run(self, text: str, values: Sequence[Any] = ()) -> Rows:
        cursor = self._db.execute(text, values or None)
        return cursor.fetchall() if cursor.description else []

    def create(self, table: str, columns: pa.Schema) -> None:
        self._db.register("_empty", columns.empty_table())
        self._db.execute(f"CREATE TABLE IF NOT EXISTS {table} AS SELECT * FROM _empty")
        self._db.unregister("_empty")

    def append(self, table: str, rows: pa.Table) -> None:
        self._db.register("_rows", rows)
        self._db.execute(f"INSERT INTO {table} SELECT * FROM _rows")
        self._db.unregister("_rows")

    def read(self, query: str, columns: pa.Schema) -> pa.Table:
        return self._db.sql(query).to_arrow_table().cast(columns)


def _line(error: Exception) -> str:
    return str(error).partition("\n")[0]
