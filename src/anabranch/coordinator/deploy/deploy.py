"""Puts definitions onto sites, and takes them off again: whole or not at all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

from anabranch.coordinator.base.sites import PREPARE_S, Sites
from anabranch.errors import AnabranchError, SiteError
from anabranch.link.messages import (
    Addresses,
    Attach,
    Begin,
    Detach,
    DropTasks,
    Prepare,
    Start,
    StartSources,
)
from anabranch.plan.catalog import (
    AnyDef,
    PocketDef,
    QueryDef,
    StreamDef,
    TableDef,
)
from anabranch.plan.definitions import Definitions, parts_read, relation, tasks, without
from anabranch.plan.tasks import TaskSpec
from anabranch.stream.restart import RestartPoint

Source = StreamDef | TableDef
DROP_S = 5.0
"""A site that takes longer, or cannot be reached, stops what is not wanted by itself."""


class TaskProtection(Protocol):
    """What a deployment needs of the coordinator's protector."""

    async def appoint(
        self,
        specs: Sequence[TaskSpec],
        known: Definitions,
        starts: Mapping[str, tuple[int, ...]],
    ) -> dict[str, tuple[int, int]]: ...
    async def look_at_once(self, names: Iterable[str], known: Definitions) -> None: ...
    def standby_of(self, stream: str) -> str | None: ...


class Rollout:
    """Deploys `new` definitions; `known` holds these and all earlier ones by name."""

    def __init__(
        self,
        sites: Sites,
        new: Sequence[AnyDef],
        known: Definitions,
        readers: Mapping[str, str] | None = None,
        protector: TaskProtection | None = None,
        begins: Mapping[str, int] | None = None,
        attached: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`readers` maps each query to the consumer that will follow it from its first tuple on.
        `begins` maps tasks that have been attached already to the position after which they read.
        `attached` is awaited when all have their inputs and nothing runs yet: if it raises, nothing
        will run.
        """
        self._begins = begins or {}
        self._attached = attached
        self._sites = sites
        self._protector = protector
        self._readers = readers or {}
        self._known = known
        self._sources = [one for one in new if isinstance(one, StreamDef | TableDef)]
        fresh = {one.name for one in new}
        earlier = [one for one in known.values() if one.name not in fresh]
        self._tasks = without(tasks(new, known), tasks(earlier, known))

    async def run(self) -> None:
        """Deploys. If this raises, nothing is left on any site."""
        prepared: list[str] = []
        try:
            for site in self._sites_needed():
                prepared.append(site)  # first: it may have prepared and not been able to say so
                await self._prepare(site)
            starts = {task.name: await self._attach(task) for task in self._tasks}
            for query, consumer in self._readers.items():
                site = relation(self._known, query).site
                await self._sites.call(site, Attach(query, consumer, lease=True))
            if self._attached:
                await self._attached()
            await self._start_tasks(starts)
            if self._protector:
                await self._protector.look_at_once([one.name for one in self._tasks], self._known)
            await self.start_sources()
        except AnabranchError:
            await _take_off(self._sites, prepared, self._sources, self._tasks)
            raise

    @property
    def task_names(self) -> list[str]:
        """The names of the new tasks. Tasks that also run for other definitions are not among
        them.
        """
        return [task.name for task in self._tasks]

    async def take_back(self) -> None:
        """Removes all of it from every site, however far it came."""
        await _take_off(self._sites, self._sites_needed(), self._sources, self._tasks)

    def _sites_needed(self) -> list[str]:
        sources = [source.site for source in self._sources]
        return list(dict.fromkeys([*sources, *(task.site for task in self._tasks)]))

    async def _prepare(self, site: str) -> None:
        sources = tuple(one for one in self._sources if one.site == site)
        local = tuple(one for one in self._tasks if one.site == site)
        await self._sites.call(site, Prepare(sources, local), PREPARE_S)
        await self._sites.call(site, Addresses(self._sites.addresses()))

    async def _attach(self, task: TaskSpec) -> tuple[int, ...]:
        """The positions where the task begins: after what each of its inputs has given so far."""
        return tuple([await self._attach_input(task, n) for n in range(len(task.inputs))])

    async def _attach_input(self, task: TaskSpec, index: int) -> int:
        source = task.inputs[index]
        after = 0 if source.table else self._begins.get(task.name)
        request = Attach(
            source.stream, task.consumer(index), after, born=task.born, past=source.past
        )
        start: int = await self._sites.call(source.site, request)
        standby = self._protector.standby_of(source.stream) if self._protector else None
        if standby:
            with suppress(SiteError):  # one that is gone will be replaced
                await self._sites.reach(standby, replace(request, after=start))
        return start

    async def _start_tasks(self, starts: Mapping[str, tuple[int, ...]]) -> None:
        by_site: dict[str, dict[str, Begin]] = defaultdict(dict)
        appointed = {}
        if self._protector:
            appointed = await self._protector.appoint(self._tasks, self._known, starts)
        for task in self._tasks:
            incarnation, epoch = appointed.get(task.name, (0, 0))
            point = RestartPoint(starts[task.name], 0, incarnation=incarnation)
            by_site[task.site][task.name] = Begin(point, epoch)
        for site, begin in by_site.items():
            await self._sites.call(site, Start(begin), PREPARE_S)

    async def start_sources(self) -> None:
        """Starts the sources. A stream begins when it has a consumer, so that its first tuples are
        not lost; one that is kept begins at once.
        """
        by_site: dict[str, list[str]] = defaultdict(list)
        read = {source.stream for task in self._tasks for source in task.inputs}
        kept = {one.name for one in self._sources if isinstance(one, StreamDef) and one.keep}
        for name in sorted(read | kept | parts_read(read, self._known)):
            definition = self._known.get(name)
            if isinstance(definition, StreamDef | TableDef):
                by_site[definition.site].append(name)
        for site, sources in by_site.items():
            await self._sites.call(site, StartSources(tuple(sources)))


async def undeploy(sites: Sites, definition: AnyDef, known: Definitions) -> list[str]:
    """Takes a definition off its sites, but for what others in `known` use; returns the names of
    the tasks that no longer exist. A site that cannot be reached learns with its next heartbeat
    that it must not run it; until then the sites it read from must not keep tuples for it.
    """
    if isinstance(definition, StreamDef | TableDef):
        await _take_off(sites, [definition.site], [definition], [])
        return []
    gone: list[TaskSpec] = []
    if isinstance(definition, QueryDef | PocketDef):
        others = [one for one in known.values() if one.name != definition.name]
        gone = without(tasks([definition], known), tasks(others, known))
        backwards = list(reversed(gone))
        await _take_off(sites, list(dict.fromkeys(one.site for one in gone)), [], backwards)
    return [task.name for task in gone]


async def _take_off(
    sites: Sites, where: Iterable[str], sources: Sequence[Source], tasks: Sequence[TaskSpec]
) -> None:
    for site in where:
        streams = {one.name: one.born for one in sources if one.site == site}
        local = {one.name: one.born for one in tasks if one.site == site}
        request = DropTasks(tuple(local), tuple(streams), born=streams | local)
        if not sites.silent(site):
            with suppress(AnabranchError):
                await sites.call(site, request, DROP_S)
        sites.forget(site, streams, local)
    await _let_go(sites, tasks)


async def _let_go(sites: Sites, tasks: Iterable[TaskSpec]) -> None:
    """Lets the producers release the tuples that these tasks would read, whether or not the tasks
    can say so themselves.
    """
    for task in tasks:
        for index, source in enumerate(task.inputs):
            with suppress(AnabranchError):
                request = Detach(source.stream, task.consumer(index), born=task.born)
                await sites.reach(source.site, request)
