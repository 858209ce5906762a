"""Reads a table or query of PostgreSQL as a table."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any, ClassVar

import psycopg
import pyarrow as pa
import pyarrow.types as pt
from psycopg import sql

from anabranch.connectors.formats.columns import from_values
from anabranch.connectors.formats.table_builder import Block, TableBuilder
from anabranch.connectors.options import TEXT, Option, take
from anabranch.connectors.postgres.client import (
    PASSWORD,
    URL,
    database_of,
    is_passing,
    reason,
    table_name,
)
from anabranch.connectors.source import SourceContext
from anabranch.connectors.table import REFRESH_US, TableContext, TableReader, refresh_option
from anabranch.errors import ConfigError, SourceAway, SourceError

_ROWS = 20_000
_POLL_S = 0.2


class PostgresTable(TableReader):
    """Columns are taken by name; values keep to the declared types or are an error."""

    options: ClassVar[tuple[Option, ...]] = (
        URL,
        PASSWORD,
        Option("table", TEXT, "'table' or 'schema.table'"),
        Option("query", TEXT, "a SELECT instead of a table"),
        refresh_option("how often it is read again; 10s if left out, without notify", None),
        Option("notify", TEXT, "a channel; when a NOTIFY comes there, it is read again"),
    )

    def __init__(self, context: TableContext) -> None:
        chosen = take("postgres", self.options, context.options)
        self._database = database_of(chosen)
        self._channel: str | None = chosen["notify"]
        refresh = chosen["refresh"] or (None if self._channel else REFRESH_US)
        self._refresh_s = None if refresh is None else refresh / 1e6
        self._select = _select(chosen, context.schema)
        self._width = len(context.schema)
        self._builder = _builder(context)
        self._read_at = 0.0
        self._listening: psycopg.Connection[Any] | None = None
        self._check(context.resume)

    def read(self, stopped: threading.Event) -> pa.Table:
        """Reads the table in one transaction, so that the content is of one moment."""
        try:
            # Heard before the content is read: a change while we read is then read again.
            self._listen()
            self._read_at = time.monotonic()
            with contextlib.closing(self._database.connect()) as connection:
                return self._fetch(connection)
        except psycopg.Error as error:
            self.close()
            raise self._failed(error) from error

    def wait(self, stopped: threading.Event, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while not stopped.is_set():
            now = time.monotonic()
            if self._refresh_s is not None and now - self._read_at >= self._refresh_s:
                return True
            if now >= deadline:
                return False
            if self._heard(stopped, min(deadline - now, _POLL_S)):
                return True
        return False

    def close(self) -> None:
        connection, self._listening = self._listening, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error):
                connection.close()

    def _fetch(self, connection: psycopg.Connection[Any]) -> pa.Table:
        tables = []
        with connection.cursor(name="anabranch") as cursor:
            cursor.execute(self._select)
            first = 1
            while rows := cursor.fetchmany(_ROWS):
                columns = list(zip(*rows, strict=True))
                block = Block(columns, range(first, first + len(rows)))
                tables.append(self._builder.build(block, self._place))
                first += len(rows)
        if not tables:
            return self._builder.build(Block([()] * self._width, ()), self._place)
        return pa.concat_tables(tables)

    def _heard(self, stopped: threading.Event, timeout_s: float) -> bool:
        """Waits for a NOTIFY and returns whether one came. True after a lost connection, which may
        have missed one.
        """
        if self._channel is None:
            stopped.wait(timeout_s)
            return False
        try:
            if self._listening is None:
                self._listen()
                return True
            notices = self._listening.notifies(timeout=timeout_s, stop_after=1)
            return any(True for _ in notices)
        except psycopg.OperationalError:
            self.close()
            stopped.wait(timeout_s)
            return False

    def _listen(self) -> None:
        """Forgets earlier notices, and listens for new ones."""
        if self._channel is None:
            return
        if self._listening is None or self._listening.closed:
            self._listening = self._database.connect(autocommit=True)
            self._listening.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel)))
        for _ in self._listening.notifies(timeout=0):
            pass

    def _check(self, resume: bool) -> None:
        """Lets the server plan the query, which needs every column but runs nothing. A query that
        goes on after a failure need not find the server there: it waits.
        """
        try:
            with contextlib.closing(self._database.connect()) as connection:
                connection.execute(sql.SQL("EXPLAIN {}").format(self._select))
        except psycopg.OperationalError as error:
            if not (resume and is_passing(error)):
                raise self._failed(error, "Check the url, and that the server runs.") from error
        except psycopg.Error as error:
            raise self._failed(error, "Check the table and the declared columns.") from error

    def _failed(self, error: psycopg.Error, remedy: str = "") -> SourceError:
        kind = SourceAway if is_passing(error) else SourceError
        return kind(reason(error), place=self._database.place, remedy=remedy)

    def _place(self, row: int) -> str:
        return f"{self._database.place}, row {row}"


def _select(chosen: dict[str, Any], schema: pa.Schema) -> sql.Composed:
    if (chosen["table"] is None) == (chosen["query"] is None):
        raise ConfigError(
            "postgres() needs either a table or a query", remedy="Write postgres(table = …)."
        )
    if chosen["table"] is not None:
        source: sql.Composable = table_name(chosen["table"])
    else:
        source = sql.SQL("({})").format(sql.SQL(chosen["query"].rstrip("; \n")))
    columns = sql.SQL(", ").join(_column(field) for field in schema)
    return sql.SQL("SELECT {} FROM {} AS t").format(columns, source)


def _column(field: pa.Field) -> sql.Composable:
    """How to select the column. Every value has a text; other types are PostgreSQL's own, so that
    nothing is rounded.
    """
    text = "{}::text" if pt.is_string(field.type) else "{}"
    return sql.SQL(text).format(sql.Identifier(field.name))


def _builder(context: TableContext) -> TableBuilder:
    source = SourceContext(
        context.table, context.schema, None, context.options, context.base, spark=_no_spark
    )
    return TableBuilder(source, "fail", from_values, "Change the declared type or the value.")


def _no_spark() -> Any:
    raise AssertionError("PostgreSQL is read without Spark")
