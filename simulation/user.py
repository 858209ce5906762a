"""Whoever writes scripts: outside of all processes, so that no crash takes what was asked for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from anabranch.plan.catalog import AnyDef, QueryDef
from simulation.clock import Process, Violation
from simulation.plan import TaskPlan
from simulation.statements import Script

if TYPE_CHECKING:
    from simulation.world import World

LOOK_MS = 40
AGAIN_MS = 500
"""Between two tries."""


class Attempt:
    """A script as a coordinator's process was told to carry it out. `outcome` is None for as long
    as that process has not said."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.outcome: bool | str | None = None

    @property
    def over(self) -> bool:
        return self.outcome is not None or not self.process.alive


class User:
    """One script after the other, each tried again for as long as it has to be. What a coordinator
    has said to be done has to be so from then on."""

    def __init__(self, world: World, scripts: Iterable[Script]) -> None:
        self._world = world
        self._scripts = list(scripts)
        self._attempt: Attempt | None = None
        self._again_at = 0
        self._mine: set[str] = set()
        """Creations that this script has asked for."""
        self._numbers = 0
        self._agreed: dict[str, str | None] = {}
        """Query → the creation that a coordinator has said to be there; None if gone."""
        world.clock.after(0, self._look)

    @property
    def content(self) -> bool:
        """Nothing is left to be asked for."""
        return not self._scripts

    def also(self, scripts: Iterable[Script]) -> None:
        """From now on."""
        now = self._world.clock.now
        self._scripts += [Script(now + one.at, one.wanted, one.must) for one in scripts]

    def check(self) -> None:
        """The catalog has what was said to be done."""
        known = self._creations()
        for name, creation in self._agreed.items():
            if known.get(name) != creation:
                raise Violation(
                    f"query {name}: {creation} was said to be there, the catalog has"
                    f" {known.get(name)}"
                )

    def _creations(self) -> dict[str, str | None]:
        return {
            one.name: one.base
            for one in self._world.catalog.definitions().values()
            if isinstance(one, QueryDef)
        }

    def _look(self) -> None:
        self._world.clock.after(LOOK_MS, self._look)
        if not self._scripts:
            return
        script, now = self._scripts[0], self._world.clock.now
        if self._attempt is None:
            if now >= max(script.at, self._again_at):
                self._try(script)
        elif self._attempt.over:
            attempt, self._attempt = self._attempt, None
            self._ended(script, attempt)

    def _ended(self, script: Script, attempt: Attempt) -> None:
        """A script that nobody has said to be done, or to be refused, may be either."""
        if attempt.outcome is True:
            self._agreed |= self._now(script)
            self._next()
            return
        self._world.log("user", f"is told: {attempt.outcome or 'nothing'}")
        for name, _ in script.wanted:
            self._agreed.pop(name, None)
        if script.must or (attempt.outcome is None and self._world.rng.random() < 0.5):
            self._again_at = self._world.clock.now + AGAIN_MS
        else:
            self._next()

    def _next(self) -> None:
        self._scripts.pop(0)
        self._mine = set()
        self._world.script_over()

    def _now(self, script: Script) -> dict[str, str | None]:
        known = self._creations()
        return {name: known.get(name) for name, _ in script.wanted}

    def _try(self, script: Script) -> None:
        coordinator = self._world.coordinator
        if not coordinator.process.alive:
            return
        known = self._world.catalog.definitions()
        now = self._now(script)
        mine = self._mine.intersection(filter(None, now.values()))
        if mine and all(one is None or one in mine for one in now.values()):
            self._next()  # it was done, though nobody could say so
            return
        if mine:
            raise Violation(f"half of a script is done: {now}")
        drop = [name for name, _ in reversed(script.wanted) if name in known]
        add = self._definitions(script, set(known) - set(drop))
        self._attempt = attempt = Attempt(coordinator.process)
        self._world.log("user", f"drops {drop}, creates {[one.name for one in add]}")
        coordinator.process.do(coordinator.apply, add, drop, attempt)

    def _definitions(self, script: Script, there: set[str]) -> list[AnyDef]:
        """Those of the script whose inputs are there."""
        plan, add = self._world.plan, list[AnyDef]()
        if not there:
            add += plan.streams()
            there |= {one.name for one in add}
        for name, task in script.wanted:
            if task and there.issuperset(task.inputs):
                add.append(plan.query(task, self._creation(task)))
                there.add(name)
        return add

    def _creation(self, task: TaskPlan) -> str:
        """Of two creations the later one has the greater name."""
        self._numbers += 1
        creation = f"{self._numbers:06}-{task.name}"
        self._mine.add(creation)
        self._world.ledger.created(creation, task.kind)
        return creation
