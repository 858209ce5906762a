"""The table that results go to: what it must be, whether it is, and the statements on it."""

from __future__ import annotations

from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql

from anabranch.connectors.postgres.client import table_name
from anabranch.connectors.postgres.types import postgres_type
from anabranch.errors import SinkError

STREAM, POSITION = "_stream", "_pos"
_STAGED = sql.Identifier("anabranch_rows")
_COLUMNS = """
    SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute
    WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum"""
_UNIQUE = """
    SELECT 1 FROM pg_index WHERE indrelid = %s AND indisunique AND indpred IS NULL AND (
      SELECT array_agg(attname::text ORDER BY attname) FROM pg_attribute
      WHERE attrelid = indrelid AND attnum = ANY (indkey)) = %s"""


class ResultTable:
    """Has the query's columns, `_stream`, `_pos` and `_ts`; a tuple is known by stream and
    position, so that several queries may share a table."""

    def __init__(self, name: str, schema: pa.Schema) -> None:
        self.text = name
        self._name = table_name(name)
        self._written = schema.names
        types = {field.name: postgres_type(field.name, field.type) for field in schema}
        own = {name: types.pop(name) for name in (POSITION, "_ts")}
        self._types = types | {STREAM: "text"} | own

    def check(self, connection: psycopg.Connection[Any], place: str) -> None:
        """SinkError unless the table is as we need it, or can be made."""
        name = self._name.as_string(connection)
        oid = connection.execute("SELECT to_regclass(%s)::oid", (name,)).fetchone()[0]  # type: ignore[index]
        if oid is None:
            self._check_schema(connection, place)
            return
        present = dict(connection.execute(_COLUMNS, (oid,)).fetchall())
        differences = _differences(self._types, present)
        if differences:
            raise SinkError(
                f"the table {self.text} does not fit the query: {differences}",
                place=place,
                remedy="Name another table, or drop that one.",
            )
        if not connection.execute(_UNIQUE, (oid, [POSITION, STREAM])).fetchone():
            raise SinkError(
                f"the table {self.text} has no key",
                place=place,
                remedy=f"Run ALTER TABLE {name} ADD PRIMARY KEY ({STREAM}, {POSITION}).",
            )

    def _check_schema(self, connection: psycopg.Connection[Any], place: str) -> None:
        schema, _, _ = self.text.rpartition(".")
        wanted = connection.execute(
            "SELECT to_regnamespace(quote_ident(coalesce(nullif(%s, ''), current_schema())))::text",
            (schema,),
        ).fetchone()
        found = wanted[0] if wanted else None
        if found is None:
            raise SinkError(
                f"there is no schema {schema!r}",
                place=place,
                remedy=f'Run CREATE SCHEMA "{schema}".',
            )
        allowed = "SELECT has_schema_privilege(to_regnamespace(%s), 'CREATE')"
        if not connection.execute(allowed, (found,)).fetchone()[0]:  # type: ignore[index]
            raise SinkError(
                f"no permission to create the table {self.text}",
                place=place,
                remedy="Create it yourself, or grant CREATE on its schema.",
            )

    def create(self, connection: psycopg.Connection[Any]) -> None:
        columns = [
            sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(type))
            for name, type in self._types.items()
        ]
        statement = "CREATE TABLE IF NOT EXISTS {} ({}, PRIMARY KEY ({}, {}))"
        key = sql.Identifier(STREAM), sql.Identifier(POSITION)
        # Two queries that share a table may make it at once, which IF NOT EXISTS does not survive.
        connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (self.text,))
        connection.execute(sql.SQL(statement).format(self._name, sql.SQL(", ").join(columns), *key))

    def clear(self, connection: psycopg.Connection[Any], stream: str) -> None:
        statement = sql.SQL("DELETE FROM {} WHERE _stream = {}")
        connection.execute(statement.format(self._name, sql.Literal(stream)))

    def last(self, connection: psycopg.Connection[Any], stream: str) -> int:
        """0 if there is none."""
        statement = sql.SQL("SELECT coalesce(max(_pos), 0) FROM {} WHERE _stream = {}")
        row = connection.execute(statement.format(self._name, sql.Literal(stream))).fetchone()
        return int(row[0]) if row else 0

    def insert(self, connection: psycopg.Connection[Any], stream: str, rows: memoryview) -> None:
        """COPY is fast but knows no ON CONFLICT: it fills a temporary table, whose rows go on to
        the real one. A position that is there already stays as it is."""
        names = sql.SQL(", ").join(map(sql.Identifier, self._written))
        stage = (
            "CREATE TEMP TABLE IF NOT EXISTS {} ON COMMIT DELETE ROWS AS SELECT {} FROM {} LIMIT 0"
        )
        connection.execute(sql.SQL(stage).format(_STAGED, names, self._name))
        copying = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(_STAGED, names)
        with connection.cursor() as cursor, cursor.copy(copying) as copy:
            copy.write(rows)
        moving = "INSERT INTO {} ({}, _stream) SELECT {}, {} FROM {} ON CONFLICT DO NOTHING"
        # A literal, not a parameter: then a % in a name is no placeholder.
        parts = self._name, names, names, sql.Literal(stream), _STAGED
        connection.execute(sql.SQL(moving).format(*parts))


def _differences(wanted: dict[str, str], present: dict[str, str]) -> str:
    wrong = [
        f"{name} is {present[name]} instead of {type}"
        for name, type in wanted.items()
        if name in present and present[name] != type
    ]
    missing = [f"{name} {type} is missing" for name, type in wanted.items() if name not in present]
    beyond = [f"{name} is not in the query" for name in present if name not in wanted]
    return ", ".join([*wrong, *missing, *beyond])
