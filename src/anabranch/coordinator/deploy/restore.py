"""Putting back onto sites what ran there before their processes died."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any

from anabranch.coordinator.control.sites import Sites
from anabranch.coordinator.deploy.deploy import PREPARE_S, Definitions, parts_read, tasks
from anabranch.coordinator.protection.protect import Protector
from anabranch.coordinator.protection.protected import settled_sink
from anabranch.errors import AnabranchError, SiteError
from anabranch.link.messages import (
    Announce,
    Attach,
    Begin,
    Drop,
    Peers,
    Place,
    Prepare,
    Start,
    StartSources,
    Status,
)
from anabranch.plan.catalog import QueryDef, StreamDef, TableDef
from anabranch.plan.tasks import TaskSpec
from anabranch.stream.restart import RestartPoint

STATUS_S = 3.0
Lost = Mapping[str, set[str]]
"""Site → the sources and tasks that should run there and do not."""


class Restoration:
    """Restores what is `lost`; all else goes on meanwhile.

    A task begins again at its restart point: what it read from then on is still with those who
    gave it, or is read again from its source, and what it gave up to then is safe with those who
    got it.
    """

    def __init__(self, sites: Sites, lost: Lost, known: Definitions, protector: Protector) -> None:
        self._sites = sites
        self._known = known
        self._lost = lost
        self._protector = protector
        all_tasks = tasks(known.values(), known)
        self._tasks = [task for task in all_tasks if task.name in lost.get(task.site, ())]
        self._sources = [one for one in known.values() if isinstance(one, StreamDef | TableDef)
                         and one.name in lost.get(one.site, ())]  # fmt: skip
        gone = {one.name for one in self._sources} | {task.output for task in self._tasks}
        self._readers = [task for task in all_tasks if any(i.stream in gone for i in task.inputs)]
        self._gone = gone
        self._points: dict[str, RestartPoint] = {}

    async def run(self) -> None:
        """If this raises, nothing that was prepared stays: it would pass for running."""
        try:
            await self._run()
        except AnabranchError:
            for site in self._lost:
                sources = tuple(one.name for one in self._sources if one.site == site)
                here = tuple(task.name for task in self._at(site))
                with suppress(AnabranchError):
                    await self._sites.call(site, Drop(here, sources, resume=True))
            raise

    async def _run(self) -> None:
        self._points = await self._protector.restart_points.points()
        for site in self._lost:
            await self._prepare(site)
        for task in self._tasks:
            if task.name not in self._points:
                self._points[task.name] = await self._begin(task)
        await self._place()
        await self._attach_readers()
        for site in self._lost:
            here = {task.name: Begin(self._points[task.name]) for task in self._at(site)}
            await self._sites.call(site, Start(here), PREPARE_S)
        read = streams_read(self._known)
        for site in self._lost:
            names = [one.name for one in self._sources if one.site == site and one.name in read]
            await self._sites.call(site, StartSources(tuple(names)))

    def _at(self, site: str) -> Iterator[TaskSpec]:
        return (task for task in self._tasks if task.site == site)

    async def _prepare(self, site: str) -> None:
        sources = tuple(one for one in self._sources if one.site == site)
        await self._sites.call(site, Prepare(sources, tuple(self._at(site)), True), PREPARE_S)
        await self._sites.call(site, Peers(self._sites.addresses()))
        await self._sites.call(site, Announce(self._protector.routes()))

    async def _begin(self, task: TaskSpec) -> RestartPoint:
        """For a task that was killed before it had a restart point: as upstream remembers it."""
        starts = [
            await self._sites.call(
                source.site,
                Attach(source.stream, task.consumer(index), 0 if source.table else None),
            )
            for index, source in enumerate(task.inputs)
        ]
        incarnation = self._protector.assignments.incarnation(task.name)
        told = await self._protector.restart_points.consumer_state(task)
        return (told and told.point) or RestartPoint(tuple(starts), 0, incarnation=incarnation)

    async def _place(self) -> None:
        """Every outlet begins where the first of its readers needs it."""
        needed: dict[str, int] = {}
        for task in self._readers:
            for index, source in enumerate(task.inputs):
                point = self._points.get(task.name)
                position = point.inputs[index] if point else 0
                needed[source.stream] = min(position, needed.get(source.stream, position))
        for site in self._lost:
            outputs = {task.output: self._points[task.name].output for task in self._at(site)
                       if task.output}  # fmt: skip
            sources = {one.name: needed.get(one.name, 0) for one in self._sources
                       if one.site == site and one.name not in outputs}  # fmt: skip
            await self._sites.call(site, Place(outputs, sources))

    async def _attach_readers(self) -> None:
        """Those who read what was lost, wherever they are, are kept tuples for again."""
        for task in self._readers:
            for index, source in enumerate(task.inputs):
                if source.stream in self._gone:
                    needs = self._protector.restart_points.told_by(task, index, self._points)
                    request = Attach(
                        source.stream, task.consumer(index), needs.after, needs.point, needs.epoch
                    )
                    await self._sites.call(source.site, request)


def streams_read(known: Definitions) -> set[str]:
    read = {source.stream for task in tasks(known.values(), known) for source in task.inputs}
    return read | parts_read(read, known)


async def lost_sites(
    sites: Sites, known: Definitions, protector: Protector, among: Collection[str] | None = None
) -> dict[str, set[str]]:
    """What sites that are up, or those `among` them, ought to run and do not. A task with a standby
    comes back by it, and so does the sink that goes with it."""
    wanted: dict[str, set[str]] = {}
    along = {one.name for one in known.values() if isinstance(one, QueryDef)
             and protector.keeps(one.name) and settled_sink(one) is None}  # fmt: skip
    for task in tasks(known.values(), known):
        if not protector.keeps(task.name) and not (task.sink and task.query in along):
            wanted.setdefault(task.site, set()).add(task.name)
    filled = protector.filled(known)
    for one in known.values():
        if isinstance(one, StreamDef | TableDef) and one.name not in filled:
            wanted.setdefault(one.site, set()).add(one.name)
    read = streams_read(known)
    alive = set(sites.alive()) if among is None else set(sites.alive()) & set(among)
    lost: dict[str, set[str]] = {}
    for site in sorted(wanted.keys() & alive):
        running = await _running(sites, site, read)
        if running is not None and not wanted[site] <= running:
            lost[site] = wanted[site] - running
    return lost


async def _running(sites: Sites, site: str, read: Collection[str]) -> set[str] | None:
    """The sources and tasks there, without what only stands by; None if it does not answer."""
    try:
        report: dict[str, Any] = await sites.call(site, Status(), STATUS_S)
    except SiteError:
        return None
    standing_by = {one["name"] for one in report["tasks"] if one["role"] != "primary"}
    return begun(report, read) - standing_by


def begun(report: Mapping[str, Any], read: Collection[str]) -> set[str]:
    """The sources and tasks that a site's report shows at work. What is only prepared is not:
    whoever was about to start it may have died. A source that nobody reads waits rightly."""
    sources = {one["stream"] for one in report.get("sources", ())
               if one.get("state") != "waiting" or one["stream"] not in read}  # fmt: skip
    return sources | {one["name"] for one in report.get("tasks", ()) if one["state"] != "waiting"}
