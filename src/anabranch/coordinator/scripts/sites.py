"""Which sites a script names and needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from anabranch.config.model import check_site_name
from anabranch.errors import ConfigError
from anabranch.language.grammar.parser import parse
from anabranch.language.grammar.statements import (
    CreateAggregate,
    CreatePocket,
    CreateQuery,
    CreateStream,
    CreateTable,
    Explain,
    Name,
    Statement,
)
from anabranch.language.source import Script
from anabranch.plan.catalog import AggregateDef, AnyDef


def sites_named(script: Script) -> list[str]:
    """The sites that a script's AT and ON name, in order; for running without a cluster file."""
    named = [name.text for statement in parse(script) for name in _named(statement)]
    return list(dict.fromkeys(named))


def check_site_names(script: Script) -> None:
    """Raises ScriptError, at its place, for the name of a site that none may have."""
    for statement in parse(script):
        for name in _named(statement):
            try:
                check_site_name(name.text)
            except ConfigError as error:
                raise script.error(name.span, error.message, error.remedy) from None


def _named(statement: Statement) -> list[Name]:
    """The sites that a statement names."""
    if isinstance(statement, CreateQuery):
        return [*statement.at, *statement.never, *sites_that_run(statement)]
    if isinstance(statement, CreatePocket):
        return [statement.site] if statement.site else []
    if isinstance(statement, CreateStream | CreateTable) and statement.site:
        return [Name(statement.site, statement.site_span or statement.span)]
    return []


def sites_that_run(statement: CreateQuery) -> list[Name]:
    """The one that it is pinned to, and those of its sink, standby and stage, if it names them."""
    standby = statement.standby.on if statement.standby else None
    pinned = statement.at[0] if len(statement.at) == 1 else None
    staged = statement.stage.sites if statement.stage else ()
    return [name for name in (pinned, statement.sink_site, standby, *staged) if name]


def sites_needed(script: Script, known: Mapping[str, AnyDef], starting: Iterable[str]) -> set[str]:
    """Of the sites that are being started, those without which the statements could not be carried
    out: what they name, those they read from, all where they leave the site open."""
    waited = set(starting)
    relations = {name.lower(): one for name, one in known.items()}
    named: set[str] = set()
    for statement in map(_unwrapped, parse(script)):
        if _anywhere(statement):
            return waited
        named |= {name.text for name in _named(statement)}
        if isinstance(statement, CreateQuery):
            read = (relations.get(one.name.text.lower()) for one in statement.select.sources)
            named |= {one.site for one in read if one and not isinstance(one, AggregateDef)}
    return named & waited


def asks_types(script: Script) -> bool:
    """Whether some site has to say the types of what the statements write, whichever it is."""
    asking = (CreateAggregate, CreatePocket, CreateQuery, CreateStream, CreateTable)
    return any(isinstance(_unwrapped(one), asking) for one in parse(script))


def _unwrapped(statement: Statement) -> Statement:
    """What is to be explained needs what it would need to be created."""
    if isinstance(statement, Explain) and isinstance(statement.target, CreateQuery):
        return statement.target
    return statement


def _anywhere(statement: Statement) -> bool:
    """It goes to a site that it does not name."""
    if isinstance(statement, CreateStream | CreateTable | CreatePocket):
        return statement.site is None
    return False
