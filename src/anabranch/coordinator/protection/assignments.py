"""Which site runs each task that may move, and which stands by; kept in the catalog."""

from __future__ import annotations

import json
from collections.abc import ItemsView, Mapping
from dataclasses import asdict, dataclass

from anabranch.coordinator.base.catalog import Catalog
from anabranch.stream.restart import RestartPoint


@dataclass(frozen=True, slots=True)
class Assignment:
    """`site` runs the task in `epoch`; `standby` would in the epoch `claim`."""

    site: str
    epoch: int
    standby: str | None = None
    claim: int = 0
    stream: str = ""
    """What the task puts out."""

    def succeeded(self, site: str, epoch: int) -> Assignment:
        """Another has taken over, and has no standby yet."""
        return Assignment(site, epoch, None, epoch, self.stream)


class Assignments:
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        kept = json.loads(catalog.setting("assignments") or "{}")
        self._assignments = {name: Assignment(**one) for name, one in kept.items()}
        self._incarnations: dict[str, int] = json.loads(catalog.setting("incarnations") or "{}")
        self._starts: dict[str, list[int]] = json.loads(catalog.setting("starts") or "{}")
        self._past: set[str] = set(json.loads(catalog.setting("past assignments") or "[]"))

    def __getitem__(self, task: str) -> Assignment:
        return self._assignments[task]

    def get(self, task: str) -> Assignment | None:
        return self._assignments.get(task)

    def items(self) -> ItemsView[str, Assignment]:
        return dict(self._assignments).items()

    def set(self, task: str, assignment: Assignment) -> None:
        self._assignments[task] = assignment
        self._save()

    def forget(self, task: str) -> None:
        if self._assignments.pop(task, None):
            self._past.add(task)
            self._catalog.remember("past assignments", json.dumps(sorted(self._past)))
            self._save()

    def had(self, task: str) -> bool:
        """There was one of that name, and a site that was away may still hold it to be there: the
        next must have a later epoch."""
        return task in self._past

    def _save(self) -> None:
        kept = {name: asdict(one) for name, one in self._assignments.items()}
        self._catalog.remember("assignments", json.dumps(kept))

    def create(self, tasks: Mapping[str, tuple[int, ...]]) -> None:
        """They are created and begin behind these positions: whatever is known of earlier ones of
        the same names is not theirs."""
        self._incarnations |= {task: self.next_epoch() for task in tasks}
        self._starts |= {task: list(inputs) for task, inputs in tasks.items()}
        self._catalog.remember("incarnations", json.dumps(self._incarnations))
        self._catalog.remember("starts", json.dumps(self._starts))

    def first(self, task: str) -> RestartPoint | None:
        """Where it began."""
        if task not in self._starts:
            return None
        return RestartPoint(tuple(self._starts[task]), 0, incarnation=self.incarnation(task))

    def incarnation(self, task: str) -> int:
        return self._incarnations.get(task, 0)

    def next_epoch(self) -> int:
        """Never the same twice, also after a restart."""
        return self._catalog.next_number()
