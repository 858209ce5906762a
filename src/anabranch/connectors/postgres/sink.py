"""Results as rows of a PostgreSQL table."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import psycopg
import pyarrow as pa

from anabranch.connectors.options import DURATION, TEXT, Option, take
from anabranch.connectors.postgres.client import URL, Database, reason
from anabranch.connectors.postgres.sink_table import ResultTable
from anabranch.connectors.postgres.types import copy_text
from anabranch.connectors.sink import SinkContext
from anabranch.errors import SinkError

_PAUSES_S = (0.05, 2.0)
"""Between two attempts to connect, from the first to the longest."""
T = TypeVar("T")


class PostgresSink:
    """Each table is one transaction. A row is known by the query and its position: one that is
    there already is not written again."""

    options: ClassVar[tuple[Option, ...]] = (
        URL,
        Option("table", TEXT, "'table' or 'schema.table'; made if it is missing", required=True),
        Option("retry", DURATION, "how long a lost connection is tried again", 30_000_000),
    )

    def __init__(self, context: SinkContext) -> None:
        chosen = take("postgres", self.options, context.options)
        self._stream, self._resume = context.query, context.resume
        self._retry_s: float = chosen["retry"] / 1e6
        self._database = Database(chosen["url"], "postgres")
        self._table = ResultTable(chosen["table"], context.schema)
        self._connection: psycopg.Connection[Any] | None = None
        self._closed = threading.Event()
        self._check()

    def open(self) -> None:
        self._closed.clear()
        self._transaction(self._prepare)

    def written(self) -> int:
        return self._transaction(lambda connection: self._table.last(connection, self._stream))

    def write(self, table: pa.Table) -> None:
        if table.num_rows:
            rows = copy_text(table)
            self._transaction(lambda made: self._table.insert(made, self._stream, rows))

    def close(self) -> None:
        """Every write is complete in itself. Ends waiting for a lost connection, too."""
        self._closed.set()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _prepare(self, connection: psycopg.Connection[Any]) -> None:
        self._table.create(connection)
        if not self._resume:
            self._table.clear(connection, self._stream)

    def _check(self) -> None:
        try:
            with contextlib.closing(self._database.connect()) as connection:
                self._table.check(connection, self._database.place)
        except psycopg.Error as error:
            raise self._failed(error, "Check the url, and that the server runs.") from error

    def _transaction(self, work: Callable[[psycopg.Connection[Any]], T]) -> T:
        """All of `work` or nothing. When the connection is lost, again from the beginning: what a
        lost commit may have written, a second attempt finds there."""
        deadline = time.monotonic() + self._retry_s
        pause = _PAUSES_S[0]
        while True:
            try:
                if self._connection is None or self._connection.closed:
                    self._connection = self._database.connect()
                with self._connection.transaction():
                    return work(self._connection)
            except psycopg.OperationalError as error:
                self._drop_connection()
                if time.monotonic() + pause > deadline or self._closed.wait(pause):
                    remedy = f"It was tried for {self._retry_s:g} s; start the query again."
                    raise self._failed(error, remedy) from error
                pause = min(2 * pause, _PAUSES_S[1])
            except psycopg.Error as error:
                raise self._failed(error) from error

    def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error):
                connection.close()

    def _failed(self, error: psycopg.Error, remedy: str = "") -> SinkError:
        return SinkError(reason(error), place=self._database.place, remedy=remedy)
