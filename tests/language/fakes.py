"""A small catalog and a typer that knows a few columns, for tests without Spark."""

from __future__ import annotations

from dataclasses import dataclass, field

from anabranch.language import (
    CreateQuery,
    CreateStream,
    Script,
    TypeAnswer,
    bind_query,
    bind_stream,
    parse,
)
from anabranch.plan.catalog import QueryDef, StreamDef
from anabranch.plan.operators import Column

SENSOR = """
CREATE STREAM Sensor1 (
  Temp DOUBLE, Room STRING, xs ARRAY<INT>, pos STRUCT<x: INT, at: STRUCT<floor: INT>>
) TIMESTAMP measured LATENESS 500ms FROM file(path = 'readings.csv') AT room1
"""


@dataclass
class FakeTyper:
    """Comparisons are boolean, columns have their type, `bad…` has none, the rest is a double.

    `calls` keeps what it was asked.
    """

    calls: list[tuple[tuple[Column, ...], str, tuple[str, ...]]] = field(default_factory=list)

    def __call__(
        self, columns: tuple[Column, ...], alias: str, expressions: tuple[str, ...]
    ) -> tuple[TypeAnswer, ...]:
        self.calls.append((columns, alias, expressions))
        types = {column.name.lower(): column.type.lower() for column in columns}
        return tuple(self._answer(types, sql) for sql in expressions)

    def _answer(self, types: dict[str, str], sql: str) -> TypeAnswer:
        if sql.startswith("bad"):
            return TypeAnswer(None, f"cannot resolve\n  {sql}")
        if any(sign in sql for sign in "<>="):
            return TypeAnswer("boolean")
        return TypeAnswer(types.get(sql.strip("`").lower(), "double"))


def sensor() -> StreamDef:
    script = Script(SENSOR)
    [statement] = parse(script)
    assert isinstance(statement, CreateStream)
    return bind_stream(statement, script, default_site=None, base="/data")


def bind(text: str, typer: FakeTyper | None = None) -> QueryDef:
    """The query that `text` declares over `Sensor1`."""
    script = Script(text)
    [statement] = parse(script)
    assert isinstance(statement, CreateQuery)
    known = {"sensor1": sensor()}
    return bind_query(
        statement,
        script,
        lambda name: known.get(name.lower()),
        ["Sensor1"],
        typer or FakeTyper(),
        base="/base",
    )
