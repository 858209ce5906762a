"""Which site runs each task that may move, and which stands by; kept in the catalog."""

from __future__ import annotations

import json
from collections.abc import ItemsView, Iterable
from dataclasses import asdict, dataclass

from anabranch.coordinator.catalog import Catalog


@dataclass(frozen=True, slots=True)
class Ruler:
    """`site` runs the task in `epoch`; `standby` would in the epoch `claim`."""

    site: str
    epoch: int
    standby: str | None = None
    claim: int = 0
    stream: str = ""
    """What the task puts out."""

    def succeeded(self, site: str, epoch: int) -> Ruler:
        """Another has taken over, and has no standby yet."""
        return Ruler(site, epoch, None, epoch, self.stream)


class Rulers:
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        kept = json.loads(catalog.setting("rulers") or "{}")
        self._rulers = {name: Ruler(**one) for name, one in kept.items()}
        self._births: dict[str, int] = json.loads(catalog.setting("births") or "{}")
        self._past: set[str] = set(json.loads(catalog.setting("past rulers") or "[]"))

    def __getitem__(self, task: str) -> Ruler:
        return self._rulers[task]

    def get(self, task: str) -> Ruler | None:
        return self._rulers.get(task)

    def items(self) -> ItemsView[str, Ruler]:
        return dict(self._rulers).items()

    def set(self, task: str, ruler: Ruler) -> None:
        self._rulers[task] = ruler
        self._save()

    def forget(self, task: str) -> None:
        if self._rulers.pop(task, None):
            self._past.add(task)
            self._catalog.remember("past rulers", json.dumps(sorted(self._past)))
            self._save()

    def ruled(self, task: str) -> bool:
        """There was one of that name, and a site that was away may still hold it to be there: the
        next must have a later epoch."""
        return task in self._past

    def _save(self) -> None:
        kept = {name: asdict(one) for name, one in self._rulers.items()}
        self._catalog.remember("rulers", json.dumps(kept))

    def bear(self, tasks: Iterable[str]) -> None:
        """They are created: whatever is known of earlier ones of the same names is not theirs."""
        self._births |= {task: self.next_epoch() for task in tasks}
        self._catalog.remember("births", json.dumps(self._births))

    def birth(self, task: str) -> int:
        return self._births.get(task, 0)

    def next_epoch(self) -> int:
        """Never the same twice, also after a restart: it is kept before it is used."""
        epoch = int(self._catalog.setting("epoch") or 0) + 1
        self._catalog.remember("epoch", str(epoch))
        return epoch
