"""What may run at each site, by the catalog and by the statements that are under way."""

from __future__ import annotations

from collections.abc import Mapping
from operator import is_
from typing import Any

from anabranch.coordinator.base.catalog import Catalog, Intention
from anabranch.coordinator.protection.protect import Protector
from anabranch.plan.catalog import AnyDef, QueryDef, StreamDef, TableDef
from anabranch.plan.definitions import settled_sink, tasks
from anabranch.plan.tasks import TaskSpec
from anabranch.plan.wanted import Creations, Wanted


class WantedThere:
    """For each site. What may be taken over may run anywhere: which of its sites does, the epochs
    decide."""

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
        for one in self._sources:
            if one.site == site or one.name in filled:
                _add(sources, one.name, one.born)
        there: Creations = {}
        streams = set(sources)
        for task, along in self._tasks:
            if task.site == site or self._protector.keeps(along):
                _add(there, task.name, task.born)
                streams |= {task.output} if task.output else set()
        readers: dict[str, tuple[str, ...]] = dict.fromkeys(streams, ())
        for task, _ in self._tasks:
            for index, source in enumerate(task.inputs):
                if source.stream in streams:
                    readers[source.stream] += (task.consumer(index),)
        return Wanted(sources, there, readers)

    def _look(self) -> None:
        """Only if something has changed."""
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
    """What there will be once it is done."""
    gone = {one.name for one in intention.drop}
    left = {name: one for name, one in known.items() if name not in gone}
    return left | {one.name: one for one in (*intention.replace, *intention.add)}


def _along(task: TaskSpec, known: Mapping[str, AnyDef]) -> str:
    """The task by whose side it goes: its own, or of a sink that moves, its query's."""
    query = known.get(task.query)
    moves = task.sink and isinstance(query, QueryDef) and settled_sink(query) is None
    return task.query if moves else task.name


def _add(creations: Creations, name: str, born: int) -> None:
    found = creations.get(name, ())
    if born not in found:
        creations[name] = (*found, born)
