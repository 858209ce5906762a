"""Putting definitions onto sites, and taking them off again: whole or not at all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from anabranch.coordinator.sites import Sites
from anabranch.errors import AnabranchError, SiteError
from anabranch.plan.catalog import (
    AggregateDef,
    AnyDef,
    PocketDef,
    QueryDef,
    Relation,
    StreamDef,
    TableDef,
)
from anabranch.plan.tasks import Input, TaskSpec, pocket_task, tasks_of

Definitions = Mapping[str, AnyDef]
Source = StreamDef | TableDef
PREPARE_S = 120.0


class Protection(Protocol):
    """What a deployment needs of the coordinator's protector."""

    def crown(self, specs: Sequence[TaskSpec], known: Definitions) -> dict[str, dict[str, int]]: ...
    def look(self, known: Definitions) -> None: ...
    def standby_of(self, stream: str) -> str | None: ...


class Deployment:
    """Deploys `new` definitions; `known` holds these and all earlier ones by name."""

    def __init__(
        self,
        sites: Sites,
        new: Sequence[AnyDef],
        known: Definitions,
        readers: Mapping[str, str] | None = None,
        protector: Protection | None = None,
    ) -> None:
        """`readers`: query → the consumer that will follow it from its first tuple on."""
        self._sites = sites
        self._protector = protector
        self._readers = readers or {}
        self._known = known
        self._sources = [one for one in new if isinstance(one, StreamDef | TableDef)]
        fresh = {one.name for one in new}
        there = [one for one in known.values() if one.name not in fresh]
        self._tasks = without(tasks(new, known), tasks(there, known))

    def run(self) -> None:
        """Nothing is left behind on any site if this raises."""
        prepared: list[str] = []
        try:
            for site in self._sites_needed():
                prepared.append(site)  # first: it may have prepared and not been able to say so
                self._prepare(site)
            points = {task.name: self._attach(task) for task in self._tasks}
            for query, consumer in self._readers.items():
                peer = self._sites.peer(relation(self._known, query).site)
                peer.call("attach", stream=query, consumer=consumer, lease=True)
            self._start_tasks(points)
            if self._protector:
                self._protector.look(self._known)
            self._start_sources()
        except AnabranchError:
            for site in prepared:
                sources = [one.name for one in self._sources if one.site == site]
                drop(self._sites, site, sources, _names_at(site, self._tasks))
            _let_go(self._sites, self._tasks)
            raise

    def _sites_needed(self) -> list[str]:
        sources = [source.site for source in self._sources]
        return list(dict.fromkeys([*sources, *(task.site for task in self._tasks)]))

    def _prepare(self, site: str) -> None:
        self._sites.peer(site).call(
            "prepare",
            timeout_s=PREPARE_S,
            sources=[one.model_dump() for one in self._sources if one.site == site],
            tasks=[one.model_dump() for one in self._tasks if one.site == site],
        )
        self._sites.peer(site).call("peers", peers=self._sites.addresses())

    def _attach(self, task: TaskSpec) -> dict[str, Any]:
        """Where the task begins: behind what each of its inputs has given so far."""
        return {"inputs": [self._attach_input(task, index) for index in range(len(task.inputs))]}

    def _attach_input(self, task: TaskSpec, index: int) -> int:
        source = task.inputs[index]
        peer = self._sites.peer(source.site)
        request: dict[str, Any] = {"stream": source.stream, "consumer": task.consumer(index)}
        start = int(peer.call("attach", **request, after=0 if source.table else None))
        standby = self._protector.standby_of(source.stream) if self._protector else None
        if standby:
            with suppress(SiteError):  # one that is gone will be replaced
                self._sites.peer(standby).call("attach", **request, after=start)
        return start

    def _start_tasks(self, points: dict[str, dict[str, Any]]) -> None:
        by_site: dict[str, dict[str, Any]] = defaultdict(dict)
        crowned = self._protector.crown(self._tasks, self._known) if self._protector else {}
        for task in self._tasks:
            by_site[task.site][task.name] = points[task.name] | crowned.get(task.name, {})
        for site, tasks in by_site.items():
            self._sites.peer(site).call("start", timeout_s=PREPARE_S, tasks=tasks)

    def _start_sources(self) -> None:
        """A stream begins when it has a consumer, so that its first tuples are not lost on none."""
        by_site: dict[str, list[str]] = defaultdict(list)
        for name in dict.fromkeys(source.stream for task in self._tasks for source in task.inputs):
            definition = self._known.get(name)
            if isinstance(definition, StreamDef | TableDef):
                by_site[definition.site].append(name)
        for site, sources in by_site.items():
            self._sites.peer(site).call("start_sources", sources=sources)


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
    assert not isinstance(found, AggregateDef | PocketDef)
    return found


def without(some: Iterable[TaskSpec], others: Iterable[TaskSpec]) -> list[TaskSpec]:
    names = {task.name for task in others}
    return [task for task in some if task.name not in names]


def undeploy(sites: Sites, definition: AnyDef, known: Definitions) -> list[str]:
    """Take a definition off its sites, but for what others in `known` use; the names of the tasks
    that are no more. A site that cannot be reached runs nothing of ours any more once it is gone;
    but those it read from would keep tuples for it for ever."""
    if isinstance(definition, StreamDef | TableDef):
        drop(sites, definition.site, [definition.name], [])
        return []
    gone: list[TaskSpec] = []
    if isinstance(definition, QueryDef | PocketDef):
        others = [one for one in known.values() if one.name != definition.name]
        gone = without(tasks([definition], known), tasks(others, known))
        for site in dict.fromkeys(task.site for task in gone):
            drop(sites, site, [], list(reversed(_names_at(site, gone))))
        _let_go(sites, gone)
    return [task.name for task in gone]


def _names_at(site: str, some: Iterable[TaskSpec]) -> list[str]:
    return [task.name for task in some if task.site == site]


def drop(sites: Sites, site: str, sources: list[str], tasks: list[str]) -> None:
    _quietly(lambda: sites.peer(site).call("drop", timeout_s=30.0, sources=sources, tasks=tasks))


def _let_go(sites: Sites, tasks: Iterable[TaskSpec]) -> None:
    """Nobody keeps tuples for these tasks any more, whether or not they could say so themselves."""
    for task in tasks:
        for index, source in enumerate(task.inputs):
            _quietly(partial(_detach, sites, source, task.consumer(index)))


def _detach(sites: Sites, source: Input, consumer: str) -> None:
    peer = sites.peer(source.site)
    peer.call("detach", timeout_s=2.0, stream=source.stream, consumer=consumer)


def _quietly(action: Callable[[], object]) -> None:
    try:
        action()
    except AnabranchError:
        return
