"""Putting back onto sites what ran there before their processes died."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from anabranch.coordinator.base.sites import PREPARE_S, Sites
from anabranch.coordinator.deploy.lost import Lost, streams_read
from anabranch.coordinator.protection.protect import Protector
from anabranch.errors import AnabranchError, CannotResume
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
)
from anabranch.plan.catalog import StreamDef, TableDef
from anabranch.plan.definitions import Definitions, tasks
from anabranch.plan.tasks import TaskSpec
from anabranch.stream.restart import FOREVER, RestartPoint


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
        self._sources = [
            one
            for one in known.values()
            if isinstance(one, StreamDef | TableDef) and one.name in lost.get(one.site, ())
        ]
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
        for site in self._lost:
            self._sites.check_state(site)
        self._points = await self._protector.restart_points.points(*self._lost)
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
        """For a task of which no site knows a restart point, since it was killed before it had one,
        or since the file with it is damaged: as upstream remembers it, or where it once began.
        Raises CannotResume if upstream has let go of what it would read there."""
        starts = [
            await self._sites.call(
                source.site,
                Attach(
                    source.stream,
                    task.consumer(index),
                    0 if source.table else None,
                    born=task.born,
                ),
            )
            for index, source in enumerate(task.inputs)
        ]
        assignments = self._protector.assignments
        told = await self._protector.restart_points.consumer_state(task)
        if told and told.point:
            return told.point
        first = assignments.first(task.name)
        if first is None:
            incarnation = assignments.incarnation(task.name)
            return RestartPoint(tuple(starts), 0, incarnation=incarnation)
        if told and any(map(int.__lt__, first.inputs, told.released)):
            raise CannotResume(
                f"nobody knows any more where {task.name} would restart: it began behind"
                f" {_listed(first.inputs)} of its inputs, and {_listed(told.released)} have been"
                " let go of since",
                place=f"site {task.site}",
                remedy="Restore its state folder from a backup, or drop the query and create it"
                " again.",
            )
        return first

    async def _place(self) -> None:
        """Every outlet begins where the first of its readers needs it."""
        needed: dict[str, int] = {}
        for task in self._readers:
            for index, source in enumerate(task.inputs):
                point = self._points.get(task.name)
                position = point.inputs[index] if point else 0
                needed[source.stream] = min(position, needed.get(source.stream, position))
        for site in self._lost:
            outputs = {
                task.output: self._points[task.name].output
                for task in self._at(site)
                if task.output
            }
            sources = {
                one.name: needed.get(one.name, FOREVER)
                for one in self._sources
                if one.site == site and one.name not in outputs
            }
            await self._sites.call(site, Place(outputs, sources))

    async def _attach_readers(self) -> None:
        """Those who read what was lost, wherever they are, are kept tuples for again."""
        for task in self._readers:
            for index, source in enumerate(task.inputs):
                if source.stream in self._gone:
                    needs = self._protector.restart_points.told_by(task, index, self._points)
                    request = Attach(
                        source.stream,
                        task.consumer(index),
                        needs.after,
                        needs.point,
                        needs.epoch,
                        born=needs.born,
                    )
                    await self._sites.call(source.site, request)


def _listed(positions: tuple[int, ...]) -> str:
    return " and ".join(f"{one:,}" for one in positions)
