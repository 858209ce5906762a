"""A small catalog and a typer that knows a few columns, for tests without Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from anabranch.language import (
    CreateAggregate,
    CreateQuery,
    CreateStream,
    CreateTable,
    Script,
    TypeAnswer,
    bind_aggregate,
    bind_query,
    bind_stream,
    bind_table,
    parse,
)
from anabranch.plan.catalog import AnyDef, QueryDef, StreamDef
from anabranch.plan.expressions import Expr, Use
from anabranch.plan.operators import Column, Condition

SENSOR = """
CREATE STREAM Sensor1 (
  Temp DOUBLE, Room STRING, xs ARRAY<INT>, pos STRUCT<x: INT, at: STRUCT<floor: INT>>
) TIMESTAMP measured LATENESS 500ms FROM file(path = 'readings.csv') AT room1
"""
OTHERS = """
CREATE STREAM Sensor2 (Temp DOUBLE, Room STRING, n INT) FROM f() AT room2;
CREATE STREAM Sensor3 (Temp DOUBLE, n BIGINT) FROM f() AT room3;
CREATE TABLE Rooms (id INT, name STRING) FROM f() AT centre;
CREATE AGGREGATE middle (DOUBLE) RETURNS DOUBLE FROM python(class = 'stats:Middle');
CREATE AGGREGATE weighted (DOUBLE, BIGINT) RETURNS DOUBLE FROM python(class = 'stats:Weighted')
"""


@dataclass
class Question:
    columns: tuple[Column, ...]
    expressions: tuple[str, ...]
    aggregate: bool


@dataclass
class FakeTyper:
    """Comparisons are boolean, columns have their type, `bad…` has none, the rest is a double.

    `calls` keeps what it was asked.
    """

    calls: list[Question] = field(default_factory=list)

    def __call__(
        self, columns: tuple[Column, ...], expressions: tuple[str, ...], *, aggregate: bool = False
    ) -> tuple[TypeAnswer, ...]:
        self.calls.append(Question(columns, expressions, aggregate))
        types = {column.name.lower(): column.type.lower() for column in columns}
        return tuple(self._answer(types, sql) for sql in expressions)

    def _answer(self, types: dict[str, str], sql: str) -> TypeAnswer:
        if sql.startswith("bad"):
            return TypeAnswer(None, f"cannot resolve\n  {sql}")
        if sql.startswith("CASE ") and sql.endswith(" END"):
            return TypeAnswer("double")
        if any(sign in sql for sign in ("<", ">", "=", " BETWEEN ", "LIKE ", " IS ", " IN (")):
            return TypeAnswer("boolean")
        if sql.startswith("COUNT("):
            return TypeAnswer("bigint")
        if sql.startswith(("MIN(", "MAX(")):
            return self._answer(types, sql[4:-1])
        if sql.isdigit():
            return TypeAnswer("int")
        return TypeAnswer(types.get(sql.strip("`").lower(), "double"))


def define(text: str, base: str = "/data") -> list[AnyDef]:
    """What the statements of `text`, none of them queries, define."""
    script = Script(text)
    found: list[AnyDef] = []
    for statement in parse(script):
        match statement:
            case CreateStream():
                found.append(bind_stream(statement, script, default_site=None, base=base))
            case CreateTable():
                found.append(bind_table(statement, script, default_site=None, base=base))
            case CreateAggregate():
                found.append(bind_aggregate(statement, script, base=base))
            case _:
                raise AssertionError(statement)
    return found


def sensor() -> StreamDef:
    (stream,) = define(SENSOR)
    assert isinstance(stream, StreamDef)
    return stream


def catalog() -> dict[str, AnyDef]:
    return {one.name.lower(): one for one in define(f"{SENSOR};{OTHERS}")}


KNOWN = catalog()


def bind(
    text: str, typer: FakeTyper | None = None, lookup: Callable[[str], AnyDef | None] | None = None
) -> QueryDef:
    """The query that `text` declares over `Sensor1` and the others."""
    script = Script(text)
    [statement] = parse(script)
    assert isinstance(statement, CreateQuery)
    return bind_query(
        statement,
        script,
        lookup or (lambda name: KNOWN.get(name.lower())),
        [one.name for one in KNOWN.values()],
        typer or FakeTyper(),
        base="/base",
    )


def expr(text: str, *columns: str, input: str = "Sensor1") -> Expr:
    """An expression from its text, with a `?` for each of the columns.

    A column is `input.column`; without a dot it is one of `input`."""
    pairs = [column.partition(".")[::2] if "." in column else (input, column) for column in columns]
    uses = tuple(Use(input=pair[0], column=pair[1]) for pair in pairs)
    return Expr(pieces=tuple(text.split("?")), uses=uses)


def condition(text: str, *columns: str, safe: bool = False, input: str = "Sensor1") -> Condition:
    return Condition(expr=expr(text, *columns, input=input), safe=safe)
