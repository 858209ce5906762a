"""What definitions say together: which tasks run, what those read, which of them are to have a
standby, and what runs at a site though nobody wants it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

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
    found: dict[str, TaskSpec] = {}
    for one in definitions:
        look = partial(relation, known)
        if isinstance(one, QueryDef):
            for task in tasks_of(one, look):
                found.setdefault(task.name, task)
        elif isinstance(one, PocketDef):
            found[one.name] = pocket_task(one, look)
    return list(found.values())


def relation(known: Definitions, name: str) -> Relation:
    found = known[name]
    assert not isinstance(found, AggregateDef | ApproximateDef | PocketDef)
    return found


def without(some: Iterable[TaskSpec], others: Iterable[TaskSpec]) -> list[TaskSpec]:
    names = {task.name for task in others}
    return [task for task in some if task.name not in names]


def parts_read(streams: Collection[str], known: Definitions) -> set[str]:
    """The parts of stages whose merged results are among `streams`: a reader of those reads the
    parts.
    """
    merged = {
        one.stage.name
        for name in streams
        if isinstance(one := known.get(name), StreamDef) and one.stage and one.stage.role == "merge"
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
    found: dict[str, Standby] = {}
    for query in known.values():
        if isinstance(query, PocketDef) and query.standby:
            found[query.name] = query.standby
        if not isinstance(query, QueryDef) or query.standby is None:
            continue
        for node in query.nodes:
            sources = [known.get(port.stream) for port in node.inputs]
            with_it = any(
                isinstance(one, StreamDef | TableDef) and one.site == node.site for one in sources
            )
            if node.name == query.name or not with_it:
                found[node.name] = query.standby
    return found


def sink_along(spec: TaskSpec, site: str, known: Definitions) -> TaskSpec | None:
    """The task of the sink that moves with its query, as it would be at `site`."""
    query = known.get(spec.name)
    if not isinstance(query, QueryDef) or not query.sink or settled_sink(query):
        return None
    sink = spec_of(sink_task(query.name), known)
    there = tuple(source.model_copy(update={"site": site}) for source in sink.inputs)
    return sink.model_copy(update={"site": site, "inputs": there})


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


def placed(one: AnyDef, task: str, site: str) -> AnyDef:
    """The definition `one` once `task` runs at another site. It is a query or pocket that the task
    belongs to, or the stream that the pocket fills.
    """
    if isinstance(one, PocketDef) and one.name == task:
        return one.model_copy(update={"site": site})
    if not isinstance(one, QueryDef) or all(node.name != task for node in one.nodes):
        return one
    nodes = tuple(n.model_copy(update={"site": site}) if n.name == task else n for n in one.nodes)
    update: dict[str, Any] = {"nodes": nodes}
    if task == one.name:
        update["site"] = site
        update["sink_site"] = settled_sink(one)
    return one.model_copy(update=update)


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
    found: set[str] = set()
    for name in query.reads:
        one = known.get(name)
        if isinstance(one, QueryDef):
            found |= _source_sites(one, known)
        elif one is not None:
            found.add(getattr(one, "site", ""))
    return found


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

    def _creations(self, one: Running) -> tuple[int, ...]:
        return (self.sources if one.kind == "source" else self.tasks).get(one.name, ())
