"""`anabranch check`: a script's names, clauses, options and types, without waiting for a Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from anabranch.cli.queries.scripts import cluster_for, read_script
from anabranch.cli.show.tables import out
from anabranch.config.cluster import Cluster
from anabranch.connectors import SINKS, SOURCES, TABLES, Connector
from anabranch.connectors.options import split, take
from anabranch.coordinator.base.catalog import IN_MEMORY, Catalog
from anabranch.coordinator.base.sites import absence
from anabranch.coordinator.placement.placing import Placing
from anabranch.coordinator.scripts.changes import Changes
from anabranch.coordinator.scripts.scripts import ScriptCheck
from anabranch.coordinator.scripts.types import Types
from anabranch.errors import AnabranchError
from anabranch.language import Script, parse
from anabranch.language.expressions.sketch_types import NoTypes, SketchTypes
from anabranch.language.grammar.statements import CreatePocket
from anabranch.plan.places import Place
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


def check_early(script: Script, cluster: Cluster, base: str) -> None:
    """Raise what Spark and a system's sites would say of names, options and files, before they are
    started, which takes its time. Nothing is said of types. A script with pockets is not looked at:
    their code would run once more."""
    if not any(isinstance(one, CreatePocket) for one in parse(script)):
        _checked(script, cluster, base, NoTypes(), LocalSites)


def _checked(
    script: Script, cluster: Cluster, base: str, types: Types, sites: type[PlannedSites]
) -> Changes:
    planned: Any = sites(list(cluster.sites))
    placing = Placing(planned, Catalog(IN_MEMORY), cluster)
    return ScriptCheck(
        script, {}, planned, base, list, placing,
        heartbeat_us=cluster.heartbeat_interval_us, missed=cluster.missed_heartbeats, types=types,
    ).run()  # fmt: skip


class PlannedSites:
    """The sites that there would be: all of them answer, as far as that needs no Spark."""

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
        """Nothing has been measured."""

    def addresses(self) -> dict[str, str]:
        return {}

    def peer(self, name: str) -> Any:
        return SimpleNamespace(call=self._answered)

    def any(self) -> Any:
        return self.peer("")

    def _answered(self, action: str, timeout_s: float = 0.0, **body: Any) -> Any:
        return _answered(action, **body)


class LocalSites(PlannedSites):
    """Those that `run` starts: the files that they would read are on this machine."""

    def _answered(self, action: str, timeout_s: float = 0.0, **body: Any) -> Any:
        answer = _answered(action, **body)
        for one in body.get("sources", ()):
            _look(one)
        return answer


def _look(source: Mapping[str, Any]) -> None:
    call = source["source"]
    try:
        _connector(source).look(call["options"], Path(source["base"]))
    except AnabranchError as error:
        error.message = f"{source['kind']} {source['name']}: {error.message}"
        raise


def _answered(action: str, **body: Any) -> Any:
    answers: dict[str, Callable[..., Any]] = {
        "check": _options,
        "describe_pocket": _pocket,
        "stage_size": lambda stage: 0,  # nobody counts what there is to read
        "calibrate": lambda task: None,  # nor what it costs there
        "plans": lambda task: [],  # only Spark knows what it can keep
    }
    return answers[action](**body)


def _pocket(name: str, class_: str, base: str) -> dict[str, Any]:
    return described(name, class_, base)


def _options(sources: list[Mapping[str, Any]], tasks: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Which there are, and whether their values can be read; and the files that they mean."""
    found: list[Place] = []
    for one in sources:
        found += _taken(_connector(one), one["source"], one)
    for one in tasks:
        found += _taken(SINKS.find(one["sink"]["name"]), one["sink"], one)
    return {"places": [place.model_dump() for place in found], "problems": []}


def _connector(source: Mapping[str, Any]) -> type[Connector]:
    name = source["source"]["name"]
    return TABLES.find(name) if source["kind"] == "table" else SOURCES.find(name)


def _taken(
    connector: type[Connector], call: Mapping[str, Any], definition: Mapping[str, Any]
) -> list[Place]:
    """The files that it means, once its options have been checked."""
    given, declared = call["options"], connector.options
    checked, others = given, set[str]()
    if connector.others:
        checked, _ = split(declared, given)
    if connector.columns_are_options:
        others = {column["name"].lower() for column in definition["columns"]}
        others -= {option.name for option in declared}
        checked = {key: value for key, value in given.items() if key.lower() not in others}
    take(call["name"], declared, checked, others)
    return connector.places(given, Path(definition["base"]))
