"""Turns a submitted pocket into what is deployed: its input query, its output stream, itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping

from anabranch.coordinator.scripts.replies import ScriptChanges
from anabranch.errors import ConfigError
from anabranch.language import CreateQuery, CreateStream, Script, parse
from anabranch.plan.catalog import AnyDef, PocketDef, QueryDef, StreamDef
from anabranch.plan.expressions import quoted
from anabranch.plan.service_levels import Standby
from anabranch.plan.spec import Submission
from anabranch.site.programs.submission import EXAMPLES

Check = Callable[[Script, dict[str, AnyDef]], ScriptChanges]
_NAME = re.compile(r"\s*(?:`([^`]+)`|(\w+))\s*;?\s*")


def changes_for(
    submitted: Submission,
    known: Mapping[str, AnyDef],
    sites: list[str],
    check: Check,
    free: Collection[str] = (),
    site: str | None = None,
) -> tuple[ScriptChanges, PocketDef]:
    """All that the pocket brings along, and itself. `check` binds statements. Streams that are
    `free` go where it goes: to `site`, or as long as that is not said, where its input is."""
    name = submitted.name
    definition = _find(known, name)
    if definition:
        raise ConfigError(
            f"there is a {definition.kind} {definition.name} already",
            remedy="Drop it first, or give the pocket another name.",
        )
    if submitted.site is not None and submitted.site not in sites:
        raise ConfigError(
            f"pocket {name}: unknown site '{submitted.site}'",
            remedy=f"Known sites: {', '.join(sites)}.",
        )
    changes, all_known = ScriptChanges(), dict(known)
    source = _input(submitted, all_known, changes, check)
    stream = _output(submitted, source, all_known, changes, check)
    there = submitted.site or site or source.site
    if stream.name in {*free, *changes.free}:
        changes.add = [_at(one, there) if one == stream else one for one in changes.add]
        if submitted.site is None:
            changes.free.add(name)
    elif submitted.site and submitted.site != stream.site:
        raise ConfigError(
            f"pocket {name} must run at {stream.site}, where its output stream {stream.name} is",
            remedy="Leave its site out, or give it a stream of its own.",
        )
    else:
        there = stream.site
    if _find({one.name: one for one in changes.add}, name):
        raise ConfigError(
            f"pocket {name} and the stream it brings along have the same name",
            remedy="Give the pocket another name.",
        )
    pocket = PocketDef(
        name=name,
        input=source.name,
        output=stream.name,
        site=there,
        program=submitted.program,
        standby=_standby(submitted, there, sites),
        made=tuple(one.name for one in changes.add),
        text=f"submitted from {submitted.program.path}",
    )
    return changes, pocket


def _at(one: AnyDef, site: str) -> AnyDef:
    return one.model_copy(update={"site": site})


def _standby(submitted: Submission, site: str, sites: list[str]) -> Standby | None:
    """The protection as the language reads it after STANDBY."""
    if submitted.standby is None:
        return None
    place = f"{submitted.name}.standby"
    (query,) = parse(Script(f"SELECT x FROM s STANDBY {submitted.standby}", place))
    if not isinstance(query, CreateQuery) or query.standby is None:
        raise ConfigError("this is no protection", place=place)
    protection = query.standby.asked
    if protection.on is not None and protection.on not in sites:
        raise ConfigError(
            f"unknown site '{protection.on}'",
            place=place,
            remedy=f"Known sites: {', '.join(sites)}.",
        )
    if protection.on == site:
        raise ConfigError(
            f"it runs at {site} itself", place=place, remedy="A standby is at another site."
        )
    return protection


def _input(
    submitted: Submission, known: dict[str, AnyDef], changes: ScriptChanges, check: Check
) -> StreamDef | QueryDef:
    name = _name_in(submitted.query)
    if name is None:
        place = f"{submitted.name}.query"
        statements = parse(Script(submitted.query, place))
        if (
            len(statements) != 1
            or not isinstance(query := statements[0], CreateQuery)
            or query.name
        ):
            remedy = "Write a SELECT or MASTER query, or the name of a stream."
            raise ConfigError("this is no query", place=place, remedy=remedy)
        name = f"{submitted.name}_input"
        at = f" AT {quoted(submitted.site)}" if submitted.site and not query.at else ""
        text = f"CREATE QUERY {quoted(name)} AS {query.text}{at}"
        _made(Script(text, place), known, changes, check)
    source = _find(known, name)
    if not isinstance(source, StreamDef | QueryDef):
        what = f"{source.kind} {source.name}" if source else f"'{name}', which does not exist"
        raise ConfigError(f"pocket {submitted.name} cannot read {what}")
    return source


def _output(
    submitted: Submission,
    source: StreamDef | QueryDef,
    known: dict[str, AnyDef],
    changes: ScriptChanges,
    check: Check,
) -> StreamDef:
    """The stream that it fills."""
    name = _name_in(submitted.output)
    if name is None:
        place = f"{submitted.name}.output"
        statements = parse(Script(submitted.output, place))
        if len(statements) != 1 or not isinstance(declared := statements[0], CreateStream):
            remedy = f"Write {EXAMPLES['output']}."
            raise ConfigError("this is no stream", place=place, remedy=remedy)
        name = declared.name
        _made(Script(submitted.output, place), known, changes, check)
    stream = _find(known, name)
    if not isinstance(stream, StreamDef) or stream.source is not None:
        what = f"{stream.kind} {stream.name}" if stream else f"'{name}', which does not exist"
        raise ConfigError(
            f"pocket {submitted.name} cannot fill {what}",
            remedy="Its output is a stream without FROM.",
        )
    for definition in known.values():
        if isinstance(definition, PocketDef) and definition.output == stream.name:
            raise ConfigError(f"stream {stream.name} is filled by pocket {definition.name} already")
    if stream.name in _upstream(source.name, known):
        raise ConfigError(
            f"pocket {submitted.name} would read what it gives, by way of {source.name}",
            remedy="Give it an output stream of its own.",
        )
    return stream


def _upstream(name: str, known: Mapping[str, AnyDef]) -> set[str]:
    """`name` and all streams that it is computed from, through queries and pockets."""
    reads: dict[str, list[str]] = {}
    for definition in known.values():
        if isinstance(definition, QueryDef | PocketDef):
            stream = definition.output if isinstance(definition, PocketDef) else definition.name
            reads.setdefault(stream, []).extend(definition.reads)
    names, rest = {name}, [name]
    while rest:
        new = [one for one in reads.get(rest.pop(), ()) if one not in names]
        names.update(new)
        rest += new
    return names


def _made(script: Script, known: dict[str, AnyDef], changes: ScriptChanges, check: Check) -> None:
    more = check(script, known)
    (definition,) = more.add
    changes.add.append(definition)
    changes.keep |= more.keep
    changes.free |= more.free
    known[definition.name] = definition


def _name_in(text: str) -> str | None:
    """The name that `text` is, if it is nothing more."""
    match = _NAME.fullmatch(text)
    return match[1] or match[2] if match else None


def _find(known: Mapping[str, AnyDef], name: str) -> AnyDef | None:
    return next((one for one in known.values() if one.name.lower() == name.lower()), None)
