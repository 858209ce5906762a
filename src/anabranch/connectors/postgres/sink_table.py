"""The table that results go to: its columns, what it must be, whether it is, and the statements
on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.types as pt
from psycopg import sql

from anabranch.connectors.formats.table_builder import sql_type
from anabranch.connectors.formats.texts import csv_text, nested_text
from anabranch.connectors.postgres.client import table_name
from anabranch.connectors.postgres.once import OnceIndex
from anabranch.errors import ConfigError, SinkError
from anabranch.plan.approximate import ESTIMATED
from anabranch.plan.catalog import Once

_TYPES: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pt.is_boolean, "boolean"),
    (pt.is_int8, "smallint"),
    (pt.is_int16, "smallint"),
    (pt.is_int32, "integer"),
    (pt.is_int64, "bigint"),
    (pt.is_float32, "real"),
    (pt.is_float64, "double precision"),
    (pt.is_string, "text"),
    (pt.is_large_string, "text"),
    (pt.is_binary, "bytea"),
    (pt.is_large_binary, "bytea"),
    (pt.is_date, "date"),
    (pt.is_nested, "jsonb"),
)


def postgres_type(name: str, type: pa.DataType) -> str:
    """The type as PostgreSQL's format_type writes it."""
    if pt.is_decimal(type):
        return f"numeric({type.precision},{type.scale})"
    if pt.is_timestamp(type):
        return f"timestamp {'with' if type.tz else 'without'} time zone"
    for applies, name_there in _TYPES:
        if applies(type):
            return name_there
    raise ConfigError(
        f"postgres() has no type for the column {name} {sql_type(type)}",
        remedy=f"Convert it in the query, as in CAST({name} AS STRING).",
    )


def copy_text(table: pa.Table) -> memoryview:
    """The text for COPY … (FORMAT csv): NULL is an empty field, the empty text has quotes."""
    columns = [_writable(column.combine_chunks()) for column in table.columns]
    return csv_text(pa.table(columns, names=table.column_names))


def _writable(column: pa.Array) -> pa.Array:
    if pt.is_binary(column.type) or pt.is_large_binary(column.type):
        texts = [None if value is None else f"\\x{value.hex()}" for value in column.to_pylist()]
        return pa.array(texts, pa.string())
    return nested_text(column) if pt.is_nested(column.type) else column


STREAM, RUN, POSITION = "_stream", "_run", "_pos"
_KEY = [POSITION, RUN, STREAM]
_OLD_KEY = [POSITION, STREAM]
"""Of tables that were made before rows bore the name of their run."""
_COLUMNS = """
    SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute
    WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum"""
_UNIQUE = """
    SELECT indexrelid::regclass::text,
      (SELECT conname FROM pg_constraint WHERE conindid = indexrelid)
    FROM pg_index WHERE indrelid = %s AND indisunique AND indpred IS NULL AND indexprs IS NULL AND (
      SELECT array_agg(attname::text ORDER BY attname) FROM pg_attribute
      WHERE attrelid = indrelid AND attnum = ANY (indkey)) = %s"""
_WHERE = """
    SELECT c.oid, n.nspname, c.relname, pg_has_role(c.relowner, 'USAGE')
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.oid = to_regclass(%s)"""


@dataclass(frozen=True)
class PresentTable:
    """The table as it is in the database."""

    oid: int
    schema: str
    name: str
    owned: bool


class ResultTable:
    """Has the query's columns, `_stream`, `_run`, `_pos` and `_ts`. Stream, run and position
    identify a tuple, so that several queries may share a table, and a query that is created again
    may add to what it wrote before.
    """

    def __init__(self, name: str, schema: pa.Schema, once: Once | None = None) -> None:
        """With `once`, a row takes the place of its estimate."""
        self.text = name
        self._name = table_name(name)
        self.quoted = self._name.as_string(None)
        self._once = OnceIndex(self.quoted, once) if once else None
        self._written = schema.names
        types = {field.name: postgres_type(field.name, field.type) for field in schema}
        own = {name: types.pop(name) for name in (POSITION, "_ts")}
        self._types = types | {STREAM: "text", RUN: "text"} | own

    def find(self, connection: psycopg.Connection[Any]) -> PresentTable | None:
        row = connection.execute(_WHERE, (self._name.as_string(connection),)).fetchone()
        return PresentTable(*row) if row else None

    def check(self, connection: psycopg.Connection[Any], place: str) -> None:
        """Raises SinkError unless the table is as we need it, or can be made or changed."""
        table = self.find(connection)
        if table is None:
            self._check_schema(connection, place)
            return
        name = self._name.as_string(connection)
        present = self._present(connection, table)
        differences = _differences(self._types, {RUN: "text"} | present)
        if differences:
            raise SinkError(
                f"the table {self.text} does not fit the query: {differences}",
                place=place,
                remedy="Name another table, or drop that one.",
            )
        keys = self._keys(connection, table, _KEY), self._keys(connection, table, _OLD_KEY)
        if not any(keys):
            raise SinkError(
                f"the table {self.text} has no key",
                place=place,
                remedy=f"Run ALTER TABLE {name} ADD PRIMARY KEY ({STREAM}, {RUN}, {POSITION}).",
            )
        if not table.owned and (RUN not in present or not keys[0]):
            raise SinkError(
                f"the table {self.text} is somebody else's, and its rows do not say of which run"
                " of the query they are",
                place=place,
                remedy=f"Have its owner run ALTER TABLE {name} ADD COLUMN IF NOT EXISTS {RUN} text"
                f" NOT NULL DEFAULT '', and make ({STREAM}, {RUN}, {POSITION}) its primary key.",
            )

    def _present(
        self, connection: psycopg.Connection[Any], present: PresentTable
    ) -> dict[str, str]:
        return dict(connection.execute(_COLUMNS, (present.oid,)).fetchall())

    def _keys(
        self, connection: psycopg.Connection[Any], present: PresentTable, key: list[str]
    ) -> list[tuple[str, str | None]]:
        """The index and the constraint that make these columns unique."""
        return connection.execute(_UNIQUE, (present.oid, key)).fetchall()

    def _check_schema(self, connection: psycopg.Connection[Any], place: str) -> None:
        schema, _, _ = self.text.rpartition(".")
        wanted = connection.execute(
            "SELECT to_regnamespace(quote_ident(coalesce(nullif(%s, ''), current_schema())))::text",
            (schema,),
        ).fetchone()
        schema_name = wanted[0] if wanted else None
        if schema_name is None:
            raise SinkError(
                f"there is no schema {schema!r}",
                place=place,
                remedy=f'Run CREATE SCHEMA "{schema}".',
            )
        allowed = "SELECT has_schema_privilege(to_regnamespace(%s), 'CREATE')"
        if not connection.execute(allowed, (schema_name,)).fetchone()[0]:  # type: ignore[index]
            raise SinkError(
                f"no permission to create the table {self.text}",
                place=place,
                remedy="Create it yourself, or grant CREATE on its schema.",
            )

    def create(self, connection: psycopg.Connection[Any]) -> PresentTable:
        """The table as we need it, made or changed where something was missing."""
        columns = [
            sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(type))
            for name, type in (self._types | {RUN: "text NOT NULL DEFAULT ''"}).items()
        ]
        statement = "CREATE TABLE IF NOT EXISTS {} ({}, PRIMARY KEY ({}, {}, {}))"
        key = [sql.Identifier(name) for name in (STREAM, RUN, POSITION)]
        # Two queries that share a table may make it at once, which IF NOT EXISTS does not survive.
        connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (self.text,))
        connection.execute(sql.SQL(statement).format(self._name, sql.SQL(", ").join(columns), *key))
        present = self.find(connection)
        assert present
        self._add_run(connection, present)
        if self._once:
            _take_time(connection)
            self._once.create(connection)
        return present

    def _add_run(self, connection: psycopg.Connection[Any], present: PresentTable) -> None:
        """Adds the column and key of the run to a table that was made before rows had a run."""
        if not self._keys(connection, present, _KEY):
            _take_time(connection)
            add = "ALTER TABLE {} ADD COLUMN IF NOT EXISTS {} text NOT NULL DEFAULT ''"
            connection.execute(sql.SQL(add).format(self._name, sql.Identifier(RUN)))
            for index, constraint in self._keys(connection, present, _OLD_KEY):
                if constraint:
                    drop = sql.SQL("ALTER TABLE {} DROP CONSTRAINT {}")
                    connection.execute(drop.format(self._name, sql.Identifier(constraint)))
                else:
                    connection.execute(sql.SQL("DROP INDEX {}").format(sql.SQL(index)))
            key = sql.SQL("ALTER TABLE {} ADD UNIQUE ({}, {}, {})")
            names = (sql.Identifier(name) for name in (STREAM, RUN, POSITION))
            connection.execute(key.format(self._name, *names))

    def adopt(self, connection: psycopg.Connection[Any], stream: str, run: str) -> int:
        """Gives this run the rows of a stream that have no run, because it wrote them before rows
        had one. Returns the last position of the run.
        """
        if run:
            _take_time(connection)
            statement = sql.SQL("UPDATE {} SET _run = {} WHERE _stream = {} AND _run = ''")
            parts = self._name, sql.Literal(run), sql.Literal(stream)
            connection.execute(statement.format(*parts))
        last = "SELECT coalesce(max(_pos), 0) FROM {} WHERE _stream = {} AND _run = {}"
        parts = self._name, sql.Literal(stream), sql.Literal(run)
        row = connection.execute(sql.SQL(last).format(*parts)).fetchone()
        return int(row[0]) if row else 0

    def count(self, connection: psycopg.Connection[Any], stream: str) -> int:
        """The number of rows of a stream, whatever run wrote them."""
        if self.find(connection) is None:
            return 0
        statement = sql.SQL("SELECT count(*) FROM {} WHERE _stream = {}")
        row = connection.execute(statement.format(self._name, sql.Literal(stream))).fetchone()
        return int(row[0]) if row else 0

    def clear(self, connection: psycopg.Connection[Any], stream: str) -> None:
        _take_time(connection)
        statement = sql.SQL("DELETE FROM {} WHERE _stream = {}")
        connection.execute(statement.format(self._name, sql.Literal(stream)))

    def insert(
        self, connection: psycopg.Connection[Any], stream: str, run: str, rows: pa.Table
    ) -> None:
        """Inserts the rows, none of which is there yet. Raises SinkError if one does not stay
        there.
        """
        own = {STREAM: stream, RUN: run}
        for name, value in own.items():
            rows = rows.append_column(name, pa.repeat(pa.scalar(value), len(rows)))
        if self._once is None:
            self._copy(connection, self._name, rows)
        else:
            self._copy(connection, self._staged(connection), rows)
            self._replace_estimates(connection, self._once, rows.column_names)

    def _staged(self, connection: psycopg.Connection[Any]) -> sql.Identifier:
        """A table of the same columns, empty at the beginning of each transaction. COPY is fast,
        but knows no ON CONFLICT.
        """
        staged = sql.Identifier("anabranch_rows")
        statement = "CREATE TEMP TABLE IF NOT EXISTS {} (LIKE {}) ON COMMIT DELETE ROWS"
        connection.execute(sql.SQL(statement).format(staged, self._name))
        return staged

    def _replace_estimates(
        self, connection: psycopg.Connection[Any], once: OnceIndex, columns: list[str]
    ) -> None:
        """Replaces estimates by exact rows. Of two exact rows the first stays, because the first
        worker to get a key has delivered it.
        """
        names = [sql.Identifier(name) for name in columns]
        news = [sql.SQL("{} = excluded.{}").format(name, name) for name in names]
        statement = sql.SQL(
            "INSERT INTO {} AS here ({}) SELECT {} FROM {} ON CONFLICT {} DO UPDATE SET {}"
            " WHERE here.{}"
        )
        listed = sql.SQL(", ").join(names)
        connection.execute(
            statement.format(
                self._name,
                listed,
                listed,
                self._staged(connection),
                once.target,
                sql.SQL(", ").join(news),
                sql.Identifier(ESTIMATED),
            )
        )

    def _copy(
        self, connection: psycopg.Connection[Any], into: sql.Identifier, rows: pa.Table
    ) -> None:
        names = sql.SQL(", ").join(map(sql.Identifier, rows.column_names))
        copying = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(into, names)
        with connection.cursor() as cursor:
            with cursor.copy(copying) as copy:
                copy.write(copy_text(rows))
            if cursor.rowcount != len(rows):
                raise SinkError(
                    f"the table {self.text} took {cursor.rowcount} of {len(rows)} rows",
                    remedy="Look for a trigger or rule on it.",
                )


def of_an_earlier_query(table: str, rows: str, remedy: str) -> ConfigError:
    return ConfigError(f"postgres() has table = {table!r}, which holds {rows}", remedy=remedy)


def _take_time(connection: psycopg.Connection[Any]) -> None:
    """Lifts the time limit for work that is done once, with all rows of a table."""
    connection.execute("SET LOCAL statement_timeout = 0")


def _differences(wanted: dict[str, str], present: dict[str, str]) -> str:
    wrong = [
        f"{name} is {present[name]} instead of {type}"
        for name, type in wanted.items()
        if name in present and present[name] != type
    ]
    missing = [f"{name} {type} is missing" for name, type in wanted.items() if name not in present]
    beyond = [f"{name} is not in the query" for name in present if name not in wanted]
    return ", ".join([*wrong, *missing, *beyond])
