"""CREATE STREAM, CREATE TABLE and CREATE AGGREGATE → what they define."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.language.binding.binder import bind_call
from anabranch.language.binding.columns import check_names
from anabranch.language.expressions.aggregates import refused
from anabranch.language.expressions.functions import check_functions
from anabranch.language.expressions.scope import EVENT_TIME, QueryInput, Scope
from anabranch.language.expressions.types import Asked, Typer, ask
from anabranch.language.grammar.statements import (
    ColumnDecl,
    CreateAggregate,
    CreateStream,
    CreateTable,
    FromItem,
    Name,
    ShedNode,
)
from anabranch.language.source import Script
from anabranch.plan.catalog import HOUR_US, AggregateDef, StreamDef, TableDef
from anabranch.plan.operators import Column
from anabranch.plan.service_levels import Shed

_RANKED = frozenset(
    {
        "boolean",
        "tinyint",
        "smallint",
        "int",
        "bigint",
        "float",
        "double",
        "decimal",
        "date",
        "timestamp",
        "timestamp_ntz",
    }
)


def bind_stream(
    stmt: CreateStream, script: Script, *, default_site: str | None, base: str
) -> StreamDef:
    """The stream that `stmt` declares, without its SHED: see `bind_shed`. Without AT it is at
    `default_site`.
    """
    if stmt.shed and not stmt.source:
        raise script.error(
            stmt.shed.span,
            "SHED is for streams with a source, and this one has none",
            "Let the program that fills it leave out what is not worth it.",
        )
    if stmt.timestamp and not stmt.source:
        raise script.error(
            stmt.timestamp.span,
            "TIMESTAMP names a field of a source, and this stream has none",
            "Leave it out: the program that fills the stream gives event times.",
        )
    if stmt.ahead and not stmt.timestamp:
        raise script.error(
            stmt.ahead.span,
            "AHEAD bounds the event times that a source brings, and this stream has no TIMESTAMP",
            "Leave it out, or say TIMESTAMP and the field.",
        )
    return StreamDef(
        name=stmt.name,
        columns=_columns(script, stmt.columns),
        site=_site(stmt, script, "stream", default_site),
        free=stmt.source is None and stmt.site is None,
        source=bind_call(stmt.source) if stmt.source else None,
        timestamp=stmt.timestamp.text if stmt.timestamp else None,
        unit=stmt.unit or "",
        lateness_us=stmt.lateness.us if stmt.lateness else 0,
        ahead_us=stmt.ahead.us if stmt.ahead else HOUR_US,
        keep=stmt.keep.asked if stmt.keep else None,
        text=script.shown(stmt.span),
        base=base,
    )


def bind_shed(node: ShedNode, stream: StreamDef, script: Script, typer: Typer) -> Shed:
    """The expression that SHED keeps tuples by. It uses the stream's columns, and their types must
    be known.
    """
    name = Name(stream.name, node.span)
    item = FromItem(name, None, None, node.span)
    scope = Scope(script, [QueryInput(stream, stream.name, item)])
    message = "aggregates cannot stand in SHED"
    check = refused(script, lambda name: False, message, "Judge each tuple by itself.")
    check_functions(script, node.keep, scope.columns_in(node.keep), check)
    keep = scope.expr(node.keep)
    for use in keep.uses:
        if use.column == EVENT_TIME.name:
            message = "SHED cannot go by event time, which is judged afterwards"
            raise script.error(node.keep.span, message, "Name columns of the stream.")
    (type_,) = ask(script, typer, scope.columns, scope.naming, [Asked(keep, node.keep.span)])
    if type_.split("<")[0].split("(")[0].lower() not in _RANKED:
        message = f"tuples cannot be ranked by a {type_}"
        raise script.error(node.keep.span, message, "Give a number: the largest are kept.")
    return Shed(most=node.most, per_us=node.per_us, keep=keep)


def bind_table(
    stmt: CreateTable, script: Script, *, default_site: str | None, base: str
) -> TableDef:
    """The table that `stmt` declares. Without AT it is at `default_site`."""
    return TableDef(
        name=stmt.name,
        columns=_columns(script, stmt.columns),
        site=_site(stmt, script, "table", default_site),
        source=bind_call(stmt.source),
        text=script.shown(stmt.span),
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
        text=script.shown(stmt.span),
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
