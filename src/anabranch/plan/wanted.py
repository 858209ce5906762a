"""What may run at a site, and what runs there though nobody wants it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Creations = dict[str, tuple[int, ...]]
"""Name → the creations of it that are meant."""


@dataclass(frozen=True, slots=True)
class Ghost:
    """A source or task that was dropped while its site could not be told. The query it was of may
    have been created again: only this creation is meant."""

    kind: str
    name: str
    born: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """All that may run at a site, by the catalog and by what is being changed just now. `readers`:
    stream that it gives → the tasks that read it."""

    sources: Creations = field(default_factory=dict)
    tasks: Creations = field(default_factory=dict)
    readers: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def ghosts(self, report: Mapping[str, Any]) -> set[Ghost]:
        """What of the site's report is not wanted."""
        return {one for one in _running(report) if one.born not in self._creations(one)}

    def _creations(self, one: Ghost) -> tuple[int, ...]:
        return (self.sources if one.kind == "source" else self.tasks).get(one.name, ())


def _running(report: Mapping[str, Any]) -> Iterator[Ghost]:
    for source in report.get("sources", ()):
        yield Ghost("source", source["stream"], source.get("born", 0))
    for task in report.get("tasks", ()):
        yield Ghost("task", task["name"], task.get("born", 0))
