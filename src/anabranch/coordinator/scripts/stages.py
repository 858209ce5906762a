"""Decides whether a window aggregate runs as a stage: if it was asked for, if it can, if it
pays.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from anabranch.connectors import SOURCES
from anabranch.coordinator.base.sites import PREPARE_S, Sites
from anabranch.coordinator.scripts.replies import Answer
from anabranch.coordinator.scripts.secrets import ScriptSecrets
from anabranch.errors import AnabranchError, ConfigError
from anabranch.language.binding.binder import bind_option
from anabranch.language.grammar.statements import CallNode, SelectState, StageNode
from anabranch.language.source import Script, Span
from anabranch.link.messages import StageSize, StateQuery
from anabranch.plan.catalog import AnyDef, QueryDef, StreamDef
from anabranch.plan.definitions import relation
from anabranch.plan.stage import Stage
from anabranch.plan.staging import candidate
from anabranch.units import duration_us

MANY = 2_000_000
"""Tuples in a source from which on a stage is chosen: it pays for the process that it takes."""
_MEMORY = re.compile(r"[0-9]+(?:\.[0-9]+)? ?[KMGT]i?B")
_DURATIONS = {"every": "every_us", "lost": "lost_us"}
_OPTIONS = (*_DURATIONS, "memory", "backup", "partitions", "keyed", "late")


class StageChoice:
    def __init__(self, script: Script, sites: Sites, secrets: ScriptSecrets) -> None:
        self._secrets = secrets
        self._script = script
        self._sites = sites

    def choose(
        self, query: QueryDef, wanted: StageNode | None, known: Mapping[str, AnyDef]
    ) -> tuple[Stage | None, str]:
        """The stage, or None; and the reason, if there was a choice."""
        stage, refusal = candidate(query, lambda name: relation(known, name), _is_partitioned)
        if wanted and wanted.wanted:
            if stage is None:
                raise self._script.error(wanted.call.span, f"this cannot be a stage: {refusal}")
            # Another query of this name is to have a state of its own.
            named = {"name": f"{query.name}-{uuid4().hex[:8]}"}
            update = self._options(wanted.call) | self._servers(wanted) | named
            return stage.model_copy(update=update), "asked for"
        if stage is None or wanted:
            return None, "asked for" if wanted and stage else ""
        if query.standby:
            return None, "the query has a standby"
        if readers := _readers(stage.input.stream, known):
            return None, f"{readers[0]} reads {stage.input.stream} too, which is then read once"
        tuples = self._tuples(stage, known)
        if tuples < MANY:
            return None, f"about {tuples:,} tuples are there; it is chosen from {MANY:,} on"
        return stage, f"chosen, since about {tuples:,} tuples are there"

    def state(self, query: QueryDef, site: str, statement: SelectState) -> Answer:
        """The rows of a SELECT from the state of `query`, and below them the offsets in it."""
        operators = query.nodes[-1].operators
        request = StateQuery(query.stages[0], operators, statement.before, statement.after)
        rows = self._sites.peer(site).send(request, PREPARE_S)
        offsets = ", ".join(f"{name}: {offset:,}" for name, offset in rows.offsets.items())
        return Answer("table", f"as of the offsets {offsets}", rows.columns, rows.rows)

    def _tuples(self, stage: Stage, known: Mapping[str, AnyDef]) -> int:
        """Roughly how many tuples there are at present; 0 if nobody can say."""
        site = relation(known, stage.input.stream).site
        try:
            whole = self._secrets.filled(stage, Span(0, 0))
            return self._sites.peer(site).send(StageSize(whole), PREPARE_S)
        except AnabranchError:  # which will be told when it is read
            return 0

    def _servers(self, wanted: StageNode) -> dict[str, object]:
        """The sites of ON. If they are on several machines, a file cannot be their database."""
        names = [one.text for one in wanted.sites]
        for number, site in enumerate(wanted.sites):
            if site.text in names[:number]:
                raise self._script.error(site.span, f"{site.text} is named twice")
        addresses = self._sites.addresses()
        hosts = {addresses[name].rpartition(":")[0] for name in names if name in addresses}
        given = {option.name for option in wanted.call.options}
        if len(hosts) > 1 and "backup" not in given:
            message = (
                f"the sites of this stage are on several machines ({', '.join(sorted(hosts))})"
            )
            remedy = "Give them a database: STAGE(backup = 'postgresql://…')."
            raise self._script.error(wanted.call.span, message, remedy)
        return {"sites": tuple(names)}

    def _options(self, call: CallNode) -> dict[str, object]:
        options: dict[str, object] = {}
        for option in call.options:
            if field := _DURATIONS.get(option.name):
                try:
                    options[field] = duration_us(str(option.value))
                except ConfigError:
                    raise self._wrong(option, "a duration such as 1s") from None
            elif option.name == "memory":
                if not _MEMORY.fullmatch(str(option.value)):
                    raise self._wrong(option, "a size such as '500MB'")
                options["memory"] = option.value
            elif option.name == "backup":
                options["backup"] = bind_option(option)
            elif option.name == "partitions":
                if option.value != "files":
                    raise self._wrong(option, "'files'")
                options["by_file"] = True
            elif option.name in ("keyed", "late"):
                if not isinstance(option.value, bool):
                    raise self._wrong(option, "true or false")
                options[option.name] = option.value
            else:
                message = f"STAGE has no option '{option.name}'"
                raise self._script.error(option.span, message, f"It has {', '.join(_OPTIONS)}.")
        return options

    def _wrong(self, option: Any, expected: str) -> Exception:
        message = f"STAGE has {option.name} = {option.value!r}"
        return self._script.error(option.span, message, f"Give {expected}.")


def _is_partitioned(source: str) -> bool:
    connector = SOURCES.get(source)
    return bool(connector and connector.partitioned)


def with_database(definition: AnyDef, folder: Path) -> AnyDef:
    """The stream of a stage with several servers for which no database was given: it gets a file in
    `folder`.
    """
    if not isinstance(definition, StreamDef) or not definition.stage:
        return definition
    stage = definition.stage
    if stage.parts == 1 or stage.backup:
        return definition
    file = str((folder / f"{quote(stage.name, safe='')}.duckdb").resolve())
    return definition.model_copy(update={"stage": stage.model_copy(update={"backup": file})})


def forget_database(definition: AnyDef, folder: Path) -> None:
    """Removes the file that it was given there."""
    stage = definition.stage if isinstance(definition, StreamDef) else None
    if stage and stage.backup and isinstance(stage.backup, str):
        file = Path(stage.backup)
        if file.parent == folder.resolve():
            file.unlink(missing_ok=True)


def _readers(stream: str, known: Mapping[str, AnyDef]) -> list[str]:
    """Queries that follow the stream itself."""
    return [
        one.name
        for one in known.values()
        if isinstance(one, QueryDef) and any(stream in _streams(node) for node in one.nodes)
    ]


def _streams(node: Any) -> set[str]:
    return {port.stream for port in node.inputs}
