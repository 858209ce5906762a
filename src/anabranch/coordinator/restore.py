"""Putting back onto sites what ran there before their processes died."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Any

from anabranch.coordinator.deploy import PREPARE_S, Definitions, tasks
from anabranch.coordinator.protect import Protector
from anabranch.coordinator.sites import Sites
from anabranch.errors import SiteError
from anabranch.plan.catalog import StreamDef, TableDef
from anabranch.plan.tasks import TaskSpec

Point = dict[str, Any]


class Restoration:
    """Restores all that `known` has at the sites `lost`; the others go on meanwhile.

    A task begins again at its restart point: what it read from then on is still with those who
    gave it, or is read again from its source, and what it gave up to then is safe with those who
    got it.
    """

    def __init__(
        self, sites: Sites, lost: Collection[str], known: Definitions, protector: Protector
    ) -> None:
        """What a standby elsewhere is about to take over is left to it."""
        self._sites = sites
        self._lost = lost
        self._protector = protector
        self._known = known
        all_tasks = tasks(known.values(), known)
        self._tasks = [task for task in all_tasks
                       if task.site in lost and not protector.in_hand(task.name)]  # fmt: skip
        self._readers = [task for task in all_tasks if any(i.site in lost for i in task.inputs)]
        self._sources = [one for one in known.values()
                         if isinstance(one, StreamDef | TableDef) and one.site in lost]  # fmt: skip
        self._points = self._gather({task.site for task in (*self._tasks, *self._readers)})

    def run(self) -> None:
        for site in self._lost:
            self._prepare(site)
        for task in self._tasks:
            if task.name not in self._points:
                self._points[task.name] = self._begin(task)
        self._place()
        self._attach_readers()
        crowned = self._protector.crown(self._tasks, self._known)
        for site in self._lost:
            here = {
                task.name: self._points[task.name] | {"epoch": crowned.get(task.name, 0)}
                for task in self._at(site)
            }
            self._sites.peer(site).call("start", timeout_s=PREPARE_S, tasks=here)
        for site in self._lost:
            read = {source.stream for task in self._readers for source in task.inputs}
            here_too = [one.name for one in self._sources if one.site == site and one.name in read]
            self._sites.peer(site).call("start_sources", sources=here_too)

    def _at(self, site: str) -> Iterator[TaskSpec]:
        return (task for task in self._tasks if task.site == site)

    def _gather(self, sites: Collection[str]) -> dict[str, Point]:
        """Where every task that matters stands, or stood when its site was killed."""
        points: dict[str, Point] = {}
        for site in sites:
            with suppress(SiteError):
                points |= self._sites.peer(site).call("points")
        return points

    def _prepare(self, site: str) -> None:
        peer = self._sites.peer(site)
        sources = [one.model_dump() for one in self._sources if one.site == site]
        here = [task.model_dump() for task in self._at(site)]
        peer.call("prepare", timeout_s=PREPARE_S, sources=sources, tasks=here, resume=True)
        peer.call("peers", peers=self._sites.addresses())

    def _begin(self, task: TaskSpec) -> Point:
        """For a task that was killed before it had a restart point: as upstream remembers it."""
        for index, source in enumerate(task.inputs):
            self._sites.peer(source.site).call(
                "attach", stream=source.stream, consumer=task.consumer(index),
                after=0 if source.table else None,
            )  # fmt: skip
        return self._protector.remembered(task)

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
        """Those who read from a lost site, wherever they are, are kept tuples for again."""
        for task in self._readers:
            point = self._points.get(task.name)
            for index, source in enumerate(task.inputs):
                if source.site in self._lost:
                    after = point["inputs"][index] if point else 0
                    self._sites.peer(source.site).call(
                        "attach",
                        stream=source.stream,
                        consumer=task.consumer(index),
                        after=after,
                    )


def lost_sites(sites: Sites, known: Definitions) -> list[str]:
    """Sites that are up and run nothing of what the catalog says they should."""
    wanted: dict[str, int] = defaultdict(int)
    for task in tasks(known.values(), known):
        wanted[task.site] += 1
    for one in known.values():
        if isinstance(one, StreamDef | TableDef):
            wanted[one.site] += 1
    alive = set(sites.alive())
    return [site for site in wanted if site in alive and _runs_nothing(sites, site)]


def _runs_nothing(sites: Sites, site: str) -> bool:
    try:
        report = sites.peer(site).call("status", timeout_s=3.0)
    except SiteError:
        return False
    return not (report["tasks"] or report["sources"])
