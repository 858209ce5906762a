"""What may run at a site, and what runs there though nobody wants it."""

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
    """All that may run at a site, by the catalog and by what is being changed just now. `readers`:
    stream that it gives → the tasks that read it."""

    sources: Creations = field(default_factory=dict)
    tasks: Creations = field(default_factory=dict)
    readers: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def ghosts(self, running: Iterable[Running]) -> set[Running]:
        """What of all that runs at the site is not wanted. A source or task was dropped while its
        site could not be told. The query it was of may have been created again: only this creation
        is meant."""
        return {one for one in running if one.born not in self._creations(one)}

    def _creations(self, one: Running) -> tuple[int, ...]:
        return (self.sources if one.kind == "source" else self.tasks).get(one.name, ())
