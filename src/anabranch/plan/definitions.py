"""What definitions say together: which tasks run, what those read, which of them are to have a
standby, and what runs at a site though nobody wants it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from anabranch.errors import TaskError
from anabranch.plan.catalog import (
    AggregateDef,
    AnyDef,
    ApproximateDef,
    PocketDef,
    QueryDef,
    Relation,
    StreamDef,
    TableDef,
)
from anabranch.plan.service_levels import Standby
from anabranch.plan.tasks import TaskSpec, pocket_task, sink_task, tasks_of

Definitions = Mapping[str, AnyDef]
"""All definitions of a system, by their names."""


def tasks(definitions: Iterable[AnyDef], known: Definitions) -> list[TaskSpec]:
    """The tasks of the queries and pockets among `definitions`; a shared one comes once."""
    specs: dict[str, TaskSpec] = {}
    for definition in definitions:
        look = partial(relation, known)
        if isinstance(definition, QueryDef):
            for task in tasks_of(definition, look):
                specs.setdefault(task.name, task)
        elif isinstance(definition, PocketDef):
            specs[definition.name] = pocket_task(definition, look)
    return list(specs.values())


def relation(known: Definitions, name: str) -> Relation:
    definition = known[name]
    assert not isinstance(definition, AggregateDef | ApproximateDef | PocketDef)
    return definition


def without(some: Iterable[TaskSpec], others: Iterable[TaskSpec]) -> list[TaskSpec]:
    names = {task.name for task in others}
    return [task for task in some if task.name not in names]


def parts_read(streams: Collection[str], known: Definitions) -> set[str]:
    """The parts of stages whose merged results are among `streams`: a reader of those reads the
    parts.
    """
    merged = {
        definition.stage.name
        for name in streams
        if isinstance(definition := known.get(name), StreamDef)
        and definition.stage
        and definition.stage.role == "merge"
    }
    return {
        one.name
        for one in known.values()
        if isinstance(one, StreamDef)
        and one.stage
        and one.stage.role == "part"
        and one.stage.name in merged
    }


def protected(known: Definitions) -> dict[str, Standby]:
    """The tasks that queries ask a standby for. A task that reads a source at its own site dies
    with it, and comes back with it; only the query itself is protected even there.
    """
    wanted: dict[str, Standby] = {}
    for query in known.values():
        if isinstance(query, PocketDef) and query.standby:
            wanted[query.name] = query.standby
        if not isinstance(query, QueryDef) or query.standby is None:
            continue
        for node in query.nodes:
            sources = [known.get(port.stream) for port in node.inputs]
            with_it = any(
                isinstance(one, StreamDef | TableDef) and one.site == node.site for one in sources
            )
            if node.name == query.name or not with_it:
                wanted[node.name] = query.standby
    return wanted


def sink_along(spec: TaskSpec, site: str, known: Definitions) -> TaskSpec | None:
    """The task of the sink that moves with its query, as it would be at `site`."""
    query = known.get(spec.name)
    if not isinstance(query, QueryDef) or not query.sink or settled_sink(query):
        return None
    sink = spec_of(sink_task(query.name), known)
    inputs = tuple(source.model_copy(update={"site": site}) for source in sink.inputs)
    return sink.model_copy(update={"site": site, "inputs": inputs})


def spec_of(name: str, known: Definitions) -> TaskSpec:
    """The task of this name. Raises TaskError if it was dropped."""
    for task in tasks(known.values(), known):
        if task.name == name:
            return task
    raise TaskError(f"{name} was dropped")


def settled_sink(query: QueryDef) -> str | None:
    """The site that a query's sink stays at though the query moves; None if it moves along."""
    if query.sink_site or not query.sink or query.sink_shared:
        return query.sink_site
    return query.site


def placed(definition: AnyDef, task: str, site: str) -> AnyDef:
    """The `definition` once `task` runs at another site. It is a query or pocket that the task
    belongs to, or the stream that the pocket fills.
    """
    if isinstance(definition, PocketDef) and definition.name == task:
        return definition.model_copy(update={"site": site})
    if not isinstance(definition, QueryDef) or all(node.name != task for node in definition.nodes):
        return definition
    nodes = tuple(
        n.model_copy(update={"site": site}) if n.name == task else n for n in definition.nodes
    )
    update: dict[str, object] = {"nodes": nodes}
    if task == definition.name:
        update["site"] = site
        update["sink_site"] = settled_sink(definition)
    return definition.model_copy(update=update)


def unprotected_sink(query: QueryDef, known: Definitions) -> str:
    """A warning if the query is protected but the site that it writes at is not; else empty. If one
    of its own sources is there, the death of that site would lose nothing more.
    """
    site = settled_sink(query) if query.standby and query.sink else None
    if site is None or site in _source_sites(query, known):
        return ""
    return (
        f"warning: what {query.name} writes stays at {site}, which nothing protects: while that"
        " site is away results wait. kafka() and postgres() go where the query goes."
    )


def _source_sites(query: QueryDef, known: Definitions) -> set[str]:
    """The sites of the streams and tables that it is computed from in the end."""
    sites: set[str] = set()
    for name in query.reads:
        definition = known.get(name)
        if isinstance(definition, QueryDef):
            sites |= _source_sites(definition, known)
        elif definition is not None:
            sites.add(getattr(definition, "site", ""))
    return sites


Creations = dict[str, tuple[int, ...]]
"""Name → the creations of it that are meant."""


@dataclass(frozen=True, slots=True)
class Running:
    """A creation of a source or task that runs somewhere."""

    kind: Literal["source", "task"]
    name: str
    born: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """All that may run at a site, by the catalog and by what is being changed just now. `readers`
    maps each of its streams to the tasks that read it.
    """

    sources: Creations = field(default_factory=dict)
    tasks: Creations = field(default_factory=dict)
    readers: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def ghosts(self, running: Iterable[Running]) -> set[Running]:
        """The sources and tasks that run at the site though they are not wanted: they were dropped
        while the site could not be reached. Their query may have been created again, so a ghost is
        one creation.
        """
        return {one for one in running if one.born not in self._creations(one)}

    def _creations(self, running: Running) -> tuple[int, ...]:
        return (self.sources if running.kind == "source" else self.tasks).get(running.name, ())
