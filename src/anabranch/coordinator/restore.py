"""Putting back onto sites what ran there before their processes died."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from anabranch.coordinator.deploy import PREPARE_S, Definitions, tasks
from anabranch.coordinator.protect import Protector
from anabranch.coordinator.protected import settled_sink
from anabranch.coordinator.sites import Sites
from anabranch.coordinator.standings import Point
from anabranch.errors import SiteError
from anabranch.plan.catalog import QueryDef, StreamDef, TableDef
from anabranch.plan.tasks import TaskSpec

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
        self._lost = lost
        self._protector = protector
        all_tasks = tasks(known.values(), known)
        self._tasks = [task for task in all_tasks if task.name in lost.get(task.site, ())]
        self._sources = [one for one in known.values() if isinstance(one, StreamDef | TableDef)
                         and one.name in lost.get(one.site, ())]  # fmt: skip
        gone = {one.name for one in self._sources} | {task.output for task in self._tasks}
        self._readers = [task for task in all_tasks if any(i.stream in gone for i in task.inputs)]
        self._gone = gone
        self._points = protector.standings.points()

    def run(self) -> None:
        for site in self._lost:
            self._prepare(site)
        for task in self._tasks:
            if task.name not in self._points:
                self._points[task.name] = self._begin(task)
        self._place()
        self._attach_readers()
        for site in self._lost:
            here = {task.name: self._points[task.name] for task in self._at(site)}
            self._sites.peer(site).call("start", timeout_s=PREPARE_S, tasks=here)
        read = {source.stream for task in self._readers for source in task.inputs}
        for site in self._lost:
            here_too = [one.name for one in self._sources if one.site == site and one.name in read]
            self._sites.peer(site).call("start_sources", sources=here_too)

    def _at(self, site: str) -> Iterator[TaskSpec]:
        return (task for task in self._tasks if task.site == site)

    def _prepare(self, site: str) -> None:
        peer = self._sites.peer(site)
        sources = [one.model_dump() for one in self._sources if one.site == site]
        here = [task.model_dump() for task in self._at(site)]
        peer.call("prepare", timeout_s=PREPARE_S, sources=sources, tasks=here, resume=True)
        peer.call("peers", peers=self._sites.addresses())
        peer.call("routes", routes=self._protector.routes())

    def _begin(self, task: TaskSpec) -> Point:
        """For a task that was killed before it had a restart point: as upstream remembers it."""
        starts = [
            self._sites.peer(source.site).call(
                "attach", stream=source.stream, consumer=task.consumer(index),
                after=0 if source.table else None,
            )
            for index, source in enumerate(task.inputs)
        ]  # fmt: skip
        birth = self._protector.rulers.birth(task.name)
        told = self._protector.standings.standing(task)
        return told or {"inputs": starts, "output": 0, "birth": birth}

    def _place(self) -> None:
        """Every outlet begins where the first of its readers needs it."""
        needed: dict[str, int] = {}
        for task in self._readers:
            for index, source in enumerate(task.inputs):
                point = self._points.get(task.name)
                position = point["inputs"][index] if point else 0
                needed[source.stream] = min(position, needed.get(source.stream, position))
        for site in self._lost:
            outputs = {task.output: self._points[task.name]["output"] for task in self._at(site)
                       if task.output}  # fmt: skip
            sources = {one.name: needed.get(one.name, 0) for one in self._sources
                       if one.site == site and one.name not in outputs}  # fmt: skip
            self._sites.peer(site).call("place", outputs=outputs, sources=sources)

    def _attach_readers(self) -> None:
        """Those who read what was lost, wherever they are, are kept tuples for again."""
        for task in self._readers:
            for index, source in enumerate(task.inputs):
                if source.stream in self._gone:
                    told = self._protector.standings.told_by(task, index, self._points)
                    self._sites.peer(source.site).call(
                        "attach", stream=source.stream, consumer=task.consumer(index), **told
                    )


def lost_sites(sites: Sites, known: Definitions, protector: Protector) -> dict[str, set[str]]:
    """What sites that are up ought to run and do not. A task with a standby comes back by it, and
    so does the sink that goes with it."""
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
    alive = set(sites.alive())
    lost: dict[str, set[str]] = {}
    for site in wanted.keys() & alive:
        running = _running(sites, site)
        if running is not None and not wanted[site] <= running:
            lost[site] = wanted[site] - running
    return lost


def _running(sites: Sites, site: str) -> set[str] | None:
    """The sources and tasks there, without what only stands by; None if it does not answer."""
    try:
        report: dict[str, Any] = sites.peer(site).call("status", timeout_s=3.0)
    except SiteError:
        return None
    sources = {one["stream"] for one in report["sources"]}
    return sources | {one["name"] for one in report["tasks"] if one["role"] == "primary"}
