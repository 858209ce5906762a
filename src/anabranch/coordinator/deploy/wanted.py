"""What may run at each site, what ought to and does not, and which of it can only go on
together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from operator import is_
from typing import Any

from anabranch.coordinator.base.catalog import Catalog, Intention
from anabranch.coordinator.base.sites import Sites
from anabranch.coordinator.protection.protect import Protector
from anabranch.errors import AnabranchError
from anabranch.link.messages import Status
from anabranch.link.reports import SiteReport
from anabranch.plan.catalog import AnyDef, QueryDef, StreamDef, TableDef
from anabranch.plan.definitions import (
    Creations,
    Definitions,
    Wanted,
    parts_read,
    settled_sink,
    tasks,
)
from anabranch.plan.tasks import TaskSpec
from anabranch.runtime.base import Runtime


class WantedThere:
    """What may run at each site. A task that may be taken over may run anywhere: the epochs decide
    which of its sites does.
    """

    def __init__(self, catalog: Catalog, protector: Protector) -> None:
        self._catalog = catalog
        self._protector = protector
        self._seen: tuple[Any, ...] = ()
        self._at: dict[str, Wanted] = {}
        self._sources: list[StreamDef | TableDef] = []
        self._tasks: list[tuple[TaskSpec, str]] = []

    def at(self, site: str) -> Wanted:
        self._look()
        if site not in self._at:
            self._at[site] = self._of(site)
        return self._at[site]

    def _of(self, site: str) -> Wanted:
        known = self._catalog.definitions()
        filled = self._protector.filled(known)
        sources: Creations = {}
        for stream in self._sources:
            if stream.site == site or stream.name in filled:
                _add(sources, stream.name, stream.born)
        creations: Creations = {}
        streams = set(sources)
        for task, along in self._tasks:
            if task.site == site or self._protector.keeps(along):
                _add(creations, task.name, task.born)
                streams |= {task.output} if task.output else set()
        readers: dict[str, tuple[str, ...]] = dict.fromkeys(streams, ())
        for task, _ in self._tasks:
            for index, source in enumerate(task.inputs):
                if source.stream in streams:
                    readers[source.stream] += (task.consumer(index),)
        return Wanted(sources, creations, readers)

    def _look(self) -> None:
        """Looks again only if something has changed."""
        known, intended = self._catalog.definitions(), self._catalog.intentions()
        now = known, intended, frozenset(name for name, _ in self._protector.assignments.items())
        if self._seen and all(map(is_, now[:2], self._seen)) and now[2] == self._seen[2]:
            return
        pictures = [known, *(_with(known, one) for one in intended.values())]
        self._sources = [
            one
            for every in pictures
            for one in every.values()
            if isinstance(one, StreamDef | TableDef)
        ]
        self._tasks = [
            (task, _along(task, every))
            for every in pictures
            for task in tasks(every.values(), every)
        ]
        self._seen = now
        self._at = {}


def _with(known: Mapping[str, AnyDef], intention: Intention) -> dict[str, AnyDef]:
    """The definitions that will exist once it is done."""
    gone = {one.name for one in intention.drop}
    left = {name: one for name, one in known.items() if name not in gone}
    return left | {one.name: one for one in (*intention.replace, *intention.add)}


def _along(task: TaskSpec, known: Mapping[str, AnyDef]) -> str:
    """The task that it moves with: itself, or for a sink that moves, its query's."""
    query = known.get(task.query)
    moves = task.sink and isinstance(query, QueryDef) and settled_sink(query) is None
    return task.query if moves else task.name


def _add(creations: Creations, name: str, born: int) -> None:
    present = creations.get(name, ())
    if born not in present:
        creations[name] = (*present, born)


STATUS_S = 3.0
Lost = Mapping[str, set[str]]
"""Site → the sources and tasks that should run there and do not."""


def streams_read(known: Definitions) -> set[str]:
    """And those that are read at once, for those who come later."""
    read = {source.stream for task in tasks(known.values(), known) for source in task.inputs}
    read |= {one.name for one in known.values() if isinstance(one, StreamDef) and one.keep}
    return read | parts_read(read, known)


async def lost_sites(
    runtime: Runtime,
    sites: Sites,
    known: Definitions,
    protector: Protector,
    among: Collection[str] | None = None,
) -> dict[str, set[str]]:
    """What each site that is up, or each of those `among` them, ought to run and does not. A task
    with a standby comes back by it, and so does the sink that goes with it. All sites are asked at
    once.
    """
    wanted: dict[str, set[str]] = {}
    along = {
        one.name
        for one in known.values()
        if isinstance(one, QueryDef) and protector.keeps(one.name) and settled_sink(one) is None
    }
    for task in tasks(known.values(), known):
        if not protector.keeps(task.name) and not (task.sink and task.query in along):
            wanted.setdefault(task.site, set()).add(task.name)
    filled = protector.filled(known)
    for definition in known.values():
        if isinstance(definition, StreamDef | TableDef) and definition.name not in filled:
            wanted.setdefault(definition.site, set()).add(definition.name)
    read = streams_read(known)
    alive = set(sites.alive()) if among is None else set(sites.alive()) & set(among)
    sites_asked = sorted(wanted.keys() & alive)
    reports = await runtime.outcomes([sites.call(site, Status(), STATUS_S) for site in sites_asked])
    lost: dict[str, set[str]] = {}
    for site, report in zip(sites_asked, reports, strict=True):
        if not isinstance(report, AnabranchError) and (gone := wanted[site] - _here(report, read)):
            lost[site] = gone
    return lost


def _here(report: SiteReport, read: Collection[str]) -> set[str]:
    """The sources and tasks there, without those that only stand by."""
    standing_by = {one.name for one in report.tasks if one.role != "primary"}
    return begun(report, read) - standing_by


def begun(report: SiteReport, read: Collection[str]) -> set[str]:
    """The sources and tasks that a site's report shows at work. Prepared ones do not count: the
    statement that was about to start them may have died. A source that nobody reads is right to
    wait.
    """
    sources = {
        one.stream for one in report.sources if one.state != "waiting" or one.stream not in read
    }
    return sources | {one.name for one in report.tasks if one.state != "waiting"}


def names_in(lost: Lost) -> set[str]:
    return set().union(*lost.values())


def only(lost: Lost, names: Collection[str]) -> dict[str, set[str]]:
    """Those of the lost things that have these names."""
    kept = {site: gone & set(names) for site, gone in lost.items()}
    return {site: gone for site, gone in kept.items() if gone}


def in_parts(lost: Lost, known: Definitions) -> list[dict[str, set[str]]]:
    """The lost things in connected parts: a reader of a lost stream can only go on together with
    its producer. Parts of a stage go on with the stream that merges them.
    """
    together = _Together(names_in(lost))
    for names in _neighbours(names_in(lost), known):
        together.join(names)
    return [only(lost, part) for part in together.parts()]


def by_sites(parts: Iterable[Lost]) -> list[dict[str, set[str]]]:
    """The parts with those of the same sites joined: a site that hangs then delays no others."""
    joined: dict[frozenset[str], dict[str, set[str]]] = {}
    for part in parts:
        whole = joined.setdefault(frozenset(part), defaultdict(set))
        for site, names in part.items():
            whole[site] |= names
    return [dict(one) for one in joined.values()]


def _neighbours(gone: Collection[str], known: Definitions) -> Iterator[set[str]]:
    producers = {task.output: task.name for task in tasks(known.values(), known) if task.output}
    for task in tasks(known.values(), known):
        for source in task.inputs:
            yield {task.name, source.stream, producers.get(source.stream, source.stream)}
        if task.output:  # a stream that a pocket fills has a name of its own
            yield {task.name, task.output}
    stages: defaultdict[str, set[str]] = defaultdict(set)
    for name in gone:
        if isinstance(definition := known.get(name), StreamDef) and definition.stage:
            stages[definition.stage.name].add(name)
    yield from stages.values()


class _Together:
    """Groups of names, joined two and more at a time; names outside `names` are ignored."""

    def __init__(self, names: Collection[str]) -> None:
        self._parts = {name: {name} for name in sorted(names)}

    def join(self, names: Collection[str]) -> None:
        joined = [self._parts[name] for name in names if name in self._parts]
        whole = set().union(*joined)
        for name in whole:
            self._parts[name] = whole

    def parts(self) -> list[set[str]]:
        return list({id(part): part for part in self._parts.values()}.values())
