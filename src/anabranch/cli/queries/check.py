"""`anabranch check`: a script's names, clauses, options and types, without waiting for a Spark."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from anabranch.cli.queries.scripts import cluster_for, read_script
from anabranch.cli.show.tables import out
from anabranch.config.cluster import ClusterConfig
from anabranch.connectors import SINKS, SOURCES, TABLES, Connector
from anabranch.connectors.options import split, take
from anabranch.coordinator.base.catalog import IN_MEMORY, Catalog
from anabranch.coordinator.base.secrets import Kept
from anabranch.coordinator.base.sites import absence
from anabranch.coordinator.placement.placing import Placing
from anabranch.coordinator.scripts.analysis import Types
from anabranch.coordinator.scripts.replies import ScriptChanges
from anabranch.coordinator.scripts.scripts import ScriptCheck
from anabranch.errors import AnabranchError
from anabranch.language import Script, parse
from anabranch.language.expressions.types import NoTypes, SketchTypes
from anabranch.language.grammar.statements import CreatePocket
from anabranch.link.message import A, Message
from anabranch.link.messages import (
    Calibrate,
    Check,
    Checked,
    DescribePocket,
    Plans,
    StageSize,
)
from anabranch.plan.catalog import StreamDef, TableDef
from anabranch.plan.operators import Call
from anabranch.plan.places import Place
from anabranch.plan.spec import Column, Plain, Secret, opened
from anabranch.plan.tasks import TaskSpec
from anabranch.site.programs.submission import described


def check_script(path: Path, cluster_file: Path | None) -> None:
    """Raises ScriptError at the first mistake that can be seen."""
    from pyspark.sql import functions

    script = read_script(path)
    cluster = cluster_for(script, cluster_file)
    base = str(path.resolve().parent)
    checked = _checked(script, cluster, base, SketchTypes(dir(functions)), PlannedSites)
    many = len(checked.answers)
    out.print(f"{path}: {many} statement{'s' * (many != 1)}, nothing wrong found.", markup=False)
    out.print("Whether files and servers are there, and what only Spark knows, shows when it runs.")


def check_early(script: Script, cluster: ClusterConfig, base: str) -> None:
    """Raises what Spark and a system's sites would say of names, options and files, before they are
    started, which takes its time. Types are not checked. A script with pockets is skipped, because
    the check would run their code once more.
    """
    if not any(isinstance(one, CreatePocket) for one in parse(script)):
        _checked(script, cluster, base, NoTypes(), PlannedLocalSites)


def _checked(
    script: Script, cluster: ClusterConfig, base: str, types: Types, sites: type[PlannedSites]
) -> ScriptChanges:
    planned: Any = sites(list(cluster.sites))
    placing = Placing(planned, Catalog(IN_MEMORY), cluster)
    return ScriptCheck(
        script,
        {},
        planned,
        base,
        list,
        placing,
        heartbeat_us=cluster.heartbeat_interval_us,
        missed=cluster.missed_heartbeats,
        types=types,
        secrets=planned.secrets,
    ).run()


class PlannedSites:
    """The sites that there would be. They answer every question that needs no Spark."""

    secrets: dict[str, Kept] | None = None
    """Nobody knows which the system will have."""

    def __init__(self, names: list[str]) -> None:
        self._names = names

    def names(self) -> list[str]:
        return self._names

    alive = names

    def heard_of(self, name: str) -> bool:
        return name in self._names

    def absence(self, name: str) -> tuple[str, str]:
        return absence(name, {}, (), self._names)

    def record(self, name: str) -> None:
        """Nothing: no site has been measured."""

    def addresses(self) -> dict[str, str]:
        return {}

    def peer(self, name: str) -> PlannedSites:
        return self

    def any(self) -> PlannedSites:
        return self

    def send(self, message: Message[A], timeout_s: float) -> A:
        """The answer that a site would give."""
        answer: Any = _answered(message)
        typed: A = answer
        return typed


class PlannedLocalSites(PlannedSites):
    """The sites that `run` starts: the files that they would read are on this machine, and all
    secrets are in the script.
    """

    secrets: dict[str, Kept] | None = {}  # noqa: RUF012 - nothing is put into it

    def send(self, message: Message[A], timeout_s: float) -> A:
        answer = super().send(message, timeout_s)
        if isinstance(message, Check):
            for source in message.sources:
                if source.source:
                    _look(source, source.source)
        return answer


def _look(definition: StreamDef | TableDef, call: Call) -> None:
    try:
        _connector(definition, call).look(_known(call), Path(definition.base))
    except AnabranchError as error:
        error.message = f"{definition.kind} {definition.name}: {error.message}"
        raise


def _answered(message: Message[Any]) -> Any:
    match message:
        case Check(sources, tasks):
            return _options(sources, tasks)
        case DescribePocket(name, class_, base):
            return described(name, class_, base)
        case StageSize():
            return 0  # nobody counts what there is to read
        case Calibrate():
            return None  # nor what it costs there
        case Plans():
            return ()  # only Spark knows what it can keep
    raise NotImplementedError(message.action)


def _options(sources: Iterable[StreamDef | TableDef], tasks: Iterable[TaskSpec]) -> Checked:
    """Checks that the options exist and that their values can be read; returns the files they
    name.
    """
    places: list[Place] = []
    for source in sources:
        if source.source:
            connector = _connector(source, source.source)
            places += _taken(connector, source.source, source.base, source.columns)
    for task in tasks:
        if task.sink:
            places += _taken(SINKS.find(task.sink.name), task.sink, task.base, task.columns)
    return Checked(tuple(places))


def _connector(definition: StreamDef | TableDef, call: Call) -> type[Connector]:
    return TABLES.find(call.name) if isinstance(definition, TableDef) else SOURCES.find(call.name)


def _known(call: Call) -> dict[str, Plain]:
    """The options, but for those whose secret values are not known here."""
    options = call.options.items()
    return {
        name: opened(value)
        for name, value in options
        if not isinstance(value, Secret) or value.value
    }


def _taken(
    connector: type[Connector], call: Call, base: str, columns: Iterable[Column]
) -> list[Place]:
    """The files that the connector would use, once its options have been checked."""
    given = _known(call)
    secret = call.options.keys() - given.keys()
    declared = [option for option in connector.options if option.name not in secret]
    checked, others = given, set[str]()
    if connector.others:
        checked, _ = split(declared, given)
    if connector.columns_are_options:
        others = {column.name.lower() for column in columns}
        others -= {option.name for option in declared}
        checked = {key: value for key, value in given.items() if key.lower() not in others}
    take(call.name, declared, checked, others)
    return connector.places(given, Path(base))
