"""The table that an approximate query's workers and estimates write to: reads its rows, and adds
estimates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

from anabranch.connectors.postgres.client import database_of, reason, table_name
from anabranch.connectors.postgres.once import OnceIndex, stream_pattern
from anabranch.connectors.postgres.sink_table import of_an_earlier_query
from anabranch.errors import SinkError
from anabranch.plan.approximate import CONFIDENCE, ESTIMATED, LOWER, UPPER
from anabranch.plan.catalog import ApproximateDef, Once
from anabranch.plan.expressions import Use
from anabranch.plan.operators import Projection
from anabranch.plan.windows import WINDOW_END, WINDOW_START

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Key = tuple[Any, ...]


class Result(NamedTuple):
    stream: str
    end: int
    key: Key
    value: float
    estimated: bool


class Estimate(NamedTuple):
    key: Key
    value: float
    bound: float


class ApproximateResults:
    """All streams of the query share the table; a window of a key is in it once. An estimate is
    written where no row is, and an exact value that comes later replaces it.
    """

    def __init__(self, query: ApproximateDef) -> None:
        """`query` has its secrets filled in."""
        self._made = query
        options = query.sink.opened()
        self._database = database_of(options)
        self._text = str(options["table"])
        self._name = table_name(self._text)
        self._mine = stream_pattern(query.name)
        once = Once(query=query.name, keys=query.keys)
        self._once = OnceIndex(self._name.as_string(None), once)

    def check_anew(self) -> None:
        """Raises ConfigError if an earlier query of the same name has left rows, and nobody has
        said that they may go. They cannot stay: its windows would pass for this one's.
        """
        if self._made.sink.options.get("mode") == "replace":
            return
        statement = sql.SQL("SELECT count(*) FROM {} WHERE _stream LIKE {}")
        with self._connected() as connection:
            if not self._exists(connection):
                return
            row = connection.execute(statement.format(self._name, sql.Literal(self._mine)))
            count = row.fetchone()
        if count and count[0]:
            remedy = "Name another table, or add mode = 'replace' to delete them."
            rows = f"{count[0]:,} {'row' if count[0] == 1 else 'rows'}"
            whose = f"{rows} of an earlier query {self._made.name}"
            raise of_an_earlier_query(self._text, whose, remedy)

    def clear(self) -> None:
        """Before a new run, and if the statement asks for it: deletes the rows that an earlier
        query of the same name left, estimates included.
        """
        if self._made.sink.options.get("mode") != "replace":
            return
        with self._connected() as connection:
            if self._exists(connection):
                statement = sql.SQL("DELETE FROM {} WHERE _stream LIKE {}")
                connection.execute(statement.format(self._name, sql.Literal(self._mine)))
                connection.commit()

    def guard(self) -> bool:
        """Makes sure that a window of a key cannot be there twice. False if there is no table
        yet.
        """
        with self._connected() as connection:
            if not self._exists(connection):
                return False
            self._once.create(connection)
            connection.commit()
            return True

    def newest(self) -> int:
        """The end of the newest window; 0 if there is none."""
        statement = sql.SQL("SELECT coalesce(max(_ts), 0) FROM {} WHERE _stream LIKE {}")
        with self._connected() as connection:
            row = connection.execute(statement.format(self._name, sql.Literal(self._mine)))
            newest = row.fetchone()
        return int(newest[0]) if newest else 0

    def since(self, end: int) -> list[Result]:
        """Windows that end at `end` or later, in order."""
        statement = sql.SQL(
            "SELECT _stream, _ts, {}, {}, {} FROM {} WHERE _stream LIKE {} AND _ts >= {}"
            " ORDER BY _ts, _stream, _pos"
        ).format(
            sql.Identifier(self._made.value),
            sql.Identifier(ESTIMATED),
            self._keys(),
            self._name,
            sql.Literal(self._mine),
            sql.Literal(end),
        )
        with self._connected() as connection:
            rows = connection.execute(statement).fetchall()
        nan = float("nan")
        return [
            Result(stream, ts, tuple(key), nan if value is None else float(value), estimated)
            for stream, ts, value, estimated, *key in rows
        ]

    def write(self, end: int, estimates: Iterable[Estimate]) -> int:
        """Writes the estimates whose rows are missing, in one transaction; returns how many."""
        query, count = self._made, 0
        with self._connected() as connection:
            for estimate in estimates:
                row = self._row(end, estimate)
                names = sql.SQL(", ").join(map(sql.Identifier, row))
                values = sql.SQL(", ").join(map(sql.Literal, row.values()))
                stream = sql.Literal(f"{query.name}/estimated")
                statement = sql.SQL(
                    "INSERT INTO {} ({}, _stream, _ts, _pos) SELECT {}, {}, {},"
                    " coalesce(max(_pos), 0) + 1 FROM {} WHERE _stream = {}"
                    " ON CONFLICT {} DO NOTHING"
                ).format(
                    self._name,
                    names,
                    values,
                    stream,
                    sql.Literal(end),
                    self._name,
                    stream,
                    self._once.target,
                )
                count += connection.execute(statement).rowcount
            connection.commit()
        return count

    def _row(self, end: int, estimate: Estimate) -> Mapping[str, Any]:
        query = self._made
        row: dict[str, object] = dict(zip(query.keys, estimate.key, strict=True))
        row |= {query.value: estimate.value, ESTIMATED: True, CONFIDENCE: query.asked.confidence}
        row |= {LOWER: estimate.value - estimate.bound, UPPER: estimate.value + estimate.bound}
        projection = query.template.written.operators[-1]
        assert isinstance(projection, Projection)
        for item in projection.items:
            if item.expr.column == Use(input="", column=WINDOW_END):
                row[item.name] = _instant(end)
            elif item.expr.column == Use(input="", column=WINDOW_START):
                row[item.name] = _instant(end - query.width_us)
        return row

    def _keys(self) -> sql.Composable:
        return sql.SQL(", ").join(map(sql.Identifier, self._made.keys))

    def _exists(self, connection: psycopg.Connection[Any]) -> bool:
        name = self._name.as_string(connection)
        row = connection.execute("SELECT to_regclass(%s)", (name,)).fetchone()
        return bool(row and row[0])

    def _connected(self) -> closing[psycopg.Connection[Any]]:
        try:
            return closing(self._database.connect())
        except psycopg.Error as error:
            raise SinkError(reason(error), place=self._database.place) from error


def _instant(us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=us)
