"""Makes sure that a window of a key is in a table once, though several streams of one query write
it there.

The table gets a unique index for each query, over the event time and the keys, in which NULL is one
key like any other. Its name is made of the table, the query and the keys: an index of the same name
is this one, whatever was created and dropped before.
"""

from __future__ import annotations

import hashlib
from typing import Any

import psycopg
from psycopg import sql

from anabranch.errors import SinkError
from anabranch.plan.catalog import Once

_INDEX = """
    SELECT i.indrelid, i.indisunique AND i.indisvalid, i.indnkeyatts
    FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
    JOIN pg_class AS t ON t.oid = to_regclass(%s)
    WHERE c.relname = %s AND c.relnamespace = t.relnamespace AND i.indrelid = t.oid"""


def stream_pattern(query: str) -> str:
    """A LIKE pattern for the streams of the query's workers and of its estimates."""
    return query.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "/%"


class OnceIndex:
    """The index of `table`, a name quoted for SQL."""

    def __init__(self, table: str, once: Once) -> None:
        self._table = table
        self._once = once
        text = "\x1f".join((table, once.query, *once.keys))
        self.name = f"anabranch_once_{hashlib.sha256(text.encode()).hexdigest()[:24]}"

    @property
    def target(self) -> sql.Composable:
        """The columns and rows of the index, for ON CONFLICT. The text of a key tells all values
        apart but NULL, which has a column of its own.
        """
        keys = [sql.Identifier(key) for key in self._once.keys]
        parts = [sql.SQL("coalesce({}::text, ''), ({} IS NULL)").format(key, key) for key in keys]
        pattern = sql.Literal(stream_pattern(self._once.query))
        columns = sql.SQL(", ").join([sql.SQL("_ts"), *parts])
        return sql.SQL("({}) WHERE _stream LIKE {}").format(columns, pattern)

    def create(self, connection: psycopg.Connection[Any]) -> None:
        """Creates the index. It exists afterwards and is as it must be, or SinkError is raised."""
        connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (self.name,))
        if not self._is_there(connection):
            connection.execute(
                sql.SQL("CREATE UNIQUE INDEX {} ON {} {}").format(
                    sql.Identifier(self.name), sql.SQL(self._table), self.target
                )
            )
            if not self._is_there(connection):
                raise self._wrong()

    def _is_there(self, connection: psycopg.Connection[Any]) -> bool:
        row = connection.execute(_INDEX, (self._table, self.name)).fetchone()
        if row is None:
            return False
        if row[1:] != (True, 1 + 2 * len(self._once.keys)):
            raise self._wrong()
        return True

    def _wrong(self) -> SinkError:
        return SinkError(
            f"the index {self.name} of {self._table} does not keep a window of a key from being"
            " there twice",
            remedy=f"Run DROP INDEX {self.name}; it is made again.",
        )
