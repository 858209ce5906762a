"""What a checked script asks for, and what its statements say back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

from anabranch.coordinator.base.secrets import Kept
from anabranch.link.messages import GoOnWithout
from anabranch.plan.catalog import AggregateDef, AnyDef, PocketDef, QueryDef, StreamDef, TableDef
from anabranch.plan.operators import Column
from anabranch.plan.tree import show_call

Row = tuple[str, ...]


@dataclass(frozen=True)
class Answer:
    """The answer to a statement: a line, a text, or a table."""

    kind: Literal["line", "text", "table"]
    text: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()


def show(what: str, known: Iterable[AnyDef]) -> Answer:
    """The answer to SHOW STREAMS, TABLES, QUERIES, AGGREGATES or POCKETS."""
    columns, row = _TABLES[what]
    rows = (row(definition) for definition in known)
    return Answer("table", columns=columns, rows=tuple(one for one in rows if one))


def _stream_row(definition: AnyDef) -> Row | None:
    if not isinstance(definition, StreamDef):
        return None
    source = show_call(definition.source) if definition.source else ""
    source += f" {definition.shed}" if definition.shed else ""
    return definition.name, definition.site, source, _columns(definition.columns)


def _table_row(definition: AnyDef) -> Row | None:
    if not isinstance(definition, TableDef):
        return None
    return (
        definition.name,
        definition.site,
        show_call(definition.source),
        _columns(definition.columns),
    )


def _query_row(definition: AnyDef) -> Row | None:
    if not isinstance(definition, QueryDef):
        return None
    into = show_call(definition.sink) if definition.sink else ""
    into += f" ON {definition.sink_site}" if definition.sink_site else ""
    clauses = " ".join(str(part) for part in (definition.standby, definition.deadline) if part)
    return (
        definition.name,
        definition.site,
        ", ".join(definition.reads),
        into,
        clauses,
        _columns(definition.columns),
    )


def _aggregate_row(definition: AnyDef) -> Row | None:
    if not isinstance(definition, AggregateDef):
        return None
    return (
        definition.name,
        ", ".join(definition.arguments),
        definition.type,
        show_call(definition.source),
    )


def _pocket_row(definition: AnyDef) -> Row | None:
    if not isinstance(definition, PocketDef):
        return None
    return (
        definition.name,
        definition.site,
        definition.input,
        definition.output,
        definition.program.path,
    )


_TABLES: dict[str, tuple[tuple[str, ...], Callable[[AnyDef], Row | None]]] = {
    "streams": (("stream", "site", "from", "columns"), _stream_row),
    "tables": (("table", "site", "from", "columns"), _table_row),
    "queries": (("query", "site", "reads", "into", "asks for", "columns"), _query_row),
    "aggregates": (("aggregate", "takes", "returns", "from"), _aggregate_row),
    "pockets": (("pocket", "site", "reads", "fills", "from"), _pocket_row),
}


def describe(definition: AnyDef) -> Answer:
    """The statement that created it, and its columns or types."""
    if isinstance(definition, AggregateDef):
        rows = [(f"argument {i}", type_) for i, type_ in enumerate(definition.arguments, start=1)]
        rows.append(("result", definition.type))
        return Answer("table", text=definition.text, columns=("part", "type"), rows=tuple(rows))
    if isinstance(definition, PocketDef):
        rows = [
            ("reads", definition.input),
            ("fills", definition.output),
            ("site", definition.site),
        ]
        return Answer("table", text=definition.text, columns=("part", "value"), rows=tuple(rows))
    columns = tuple((column.name, column.type) for column in definition.columns)
    return Answer("table", text=definition.text, columns=("column", "type"), rows=columns)


def _columns(columns: tuple[Column, ...]) -> str:
    return ", ".join(f"{column.name} {column.type}" for column in columns)


@dataclass
class ScriptChanges:
    """`add` is in the order in which definitions can be made. Secrets to `keep` exist before
    anything names them, and those to `forget` until nothing does.
    """

    answers: list[Answer] = field(default_factory=list)
    add: list[AnyDef] = field(default_factory=list)
    drop: list[str] = field(default_factory=list)
    keep: dict[str, Kept] = field(default_factory=dict)
    forget: list[str] = field(default_factory=list)
    give_up: tuple[str, GoOnWithout] | None = None
    """A site, and what a person gives up there. No other change comes with it."""
    free: set[str] = field(default_factory=set)
    """What may be anywhere, of what is added: the system says where."""
