"""CREATE STREAM, CREATE TABLE and CREATE AGGREGATE → what they define."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.language.binder import bind_call
from anabranch.language.outputs import check_names
from anabranch.language.source import Script
from anabranch.language.statements import ColumnDecl, CreateAggregate, CreateStream, CreateTable
from anabranch.plan.catalog import AggregateDef, StreamDef, TableDef
from anabranch.plan.operators import Column


def bind_stream(
    stmt: CreateStream, script: Script, *, default_site: str | None, base: str
) -> StreamDef:
    """The stream that `stmt` declares. Without AT it is at `default_site`."""
    if stmt.timestamp and not stmt.source:
        raise script.error(
            stmt.timestamp.span,
            "TIMESTAMP names a field of a source, and this stream has none",
            "Leave it out: the program that fills the stream gives event times.",
        )
    return StreamDef(
        name=stmt.name,
        columns=_columns(script, stmt.columns),
        site=_site(stmt, script, "stream", default_site),
        source=bind_call(stmt.source) if stmt.source else None,
        timestamp=stmt.timestamp.text if stmt.timestamp else None,
        lateness_us=stmt.lateness.us if stmt.lateness else 0,
        text=stmt.text,
        base=base,
    )


def bind_table(
    stmt: CreateTable, script: Script, *, default_site: str | None, base: str
) -> TableDef:
    """The table that `stmt` declares. Without AT it is at `default_site`."""
    return TableDef(
        name=stmt.name,
        columns=_columns(script, stmt.columns),
        site=_site(stmt, script, "table", default_site),
        source=bind_call(stmt.source),
        text=stmt.text,
        base=base,
    )


def bind_aggregate(stmt: CreateAggregate, script: Script, *, base: str) -> AggregateDef:
    source = bind_call(stmt.source)
    path = source.options.get("class")
    if source.name != "python" or not isinstance(path, str) or not all(path.partition(":")):
        raise script.error(
            stmt.source.span,
            "an aggregate is a Python class",
            "Write FROM python(class = 'module:Class').",
        )
    return AggregateDef(
        name=stmt.name,
        arguments=tuple(one.text for one in stmt.arguments),
        type=stmt.returns.text,
        source=source,
        text=stmt.text,
        base=base,
    )


def _columns(script: Script, declared: Sequence[ColumnDecl]) -> tuple[Column, ...]:
    check_names(script, [column.name for column in declared], "Choose another name.")
    return tuple(Column(name=one.name.text, type=one.type) for one in declared)


def _site(
    stmt: CreateStream | CreateTable, script: Script, kind: str, default_site: str | None
) -> str:
    site = stmt.site or default_site
    if site is None:
        message, remedy = f"{kind} {stmt.name} needs AT site", "Add AT and the name of a site."
        raise script.error(stmt.name_span, message, remedy)
    return site
