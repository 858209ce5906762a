"""Decides what may run at a site, and finds what runs there though nobody wants it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

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
