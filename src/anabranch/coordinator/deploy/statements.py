"""Statements are transactions between the sites and the catalog.

What a statement changes is written to the catalog as an intention before any site is asked. Then
the sites are asked, and one transaction commits the change and removes the intention. If the
coordinator dies on the way, the intention remains, and after its restart decides what to do:

- All that was to be added runs: the statement is committed. - Nothing was to be dropped: what may
be at the sites is taken off them again, as if a site had refused. Results in sinks stay there, as
after a DROP. - Something was to be dropped: the drop goes on, since the state may be gone from some
sites already. What was to be added in its place is then deployed again from its beginning, under a
new number of its creation. If that cannot be, only what was to be dropped has gone.

Until it is decided nobody else changes what the statement touches.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from uuid import uuid4

from anabranch.coordinator.base.catalog import Catalog, Intention
from anabranch.coordinator.base.sites import Sites
from anabranch.coordinator.base.turns import Turns
from anabranch.coordinator.deploy.deploy import Rollout, undeploy
from anabranch.coordinator.protection.protect import Protector
from anabranch.errors import AnabranchError
from anabranch.link.messages import Status
from anabranch.link.reports import SiteReport
from anabranch.plan.catalog import AnyDef, ApproximateDef, PocketDef, QueryDef, StreamDef, TableDef
from anabranch.plan.definitions import Definitions, tasks
from anabranch.plan.spec import run_name
from anabranch.runtime.base import Runtime


def new_run() -> str:
    return run_name(time.time_ns() // 1000, uuid4().hex)


AWAY_S = 60.0
"""So long sites are waited for that an unfinished statement needs."""
LOOK_S = 0.2
STATUS_S = 3.0


class StatementRunner:
    """Changes what runs, in the turns of the names that a change touches. `say` is called with
    intentions that an earlier run left and with what has become of them.
    """

    def __init__(
        self,
        runtime: Runtime,
        sites: Sites,
        catalog: Catalog,
        protector: Protector,
        turns: Turns,
        say: Callable[[str], None],
    ) -> None:
        self._runtime = runtime
        self._sites = sites
        self._catalog = catalog
        self._protector = protector
        self._turns = turns
        self._say = say
        self.left = dict(catalog.intentions())
        """What was begun and not finished, by an earlier life or since the disk failed."""
        self._held: set[int] = set()
        self.hold()

    def hold(self) -> None:
        """Keeps others from changing what is left until it is finished."""
        for number in self.left.keys() - self._held:
            self._turns.take(self._touched(self.left[number]))
            self._held.add(number)

    def _touched(self, intention: Intention) -> set[str]:
        gone = [one.name for one in intention.drop]
        names = touched(intention.add, gone, self._catalog.definitions())
        return names | intention.names

    # -- changing --------------------------------------------------------------------------------

    async def change(
        self,
        add: Sequence[AnyDef],
        gone: Sequence[str],
        readers: Mapping[str, str],
        between: Callable[[], None],
    ) -> None:
        """Makes the change. If a site refuses what it is asked to run, only what is to be dropped
        has gone.
        """
        known = self._catalog.definitions()
        left = {name: one for name, one in known.items() if name not in gone}
        new = created(add, left, self._catalog.next_number())
        intention = Intention(add=tuple(new), drop=tuple(known[name] for name in gone))
        number = self._catalog.intend(intention)
        try:
            refusal = await self._carry_out(intention, readers, between)
            self._catalog.change(() if refusal else new, gone, intention=number)
        except Exception:
            self.left[number] = intention
            raise
        if refusal:
            raise refusal

    async def _carry_out(
        self, intention: Intention, readers: Mapping[str, str], between: Callable[[], None]
    ) -> AnabranchError | None:
        """Adds. If a site refuses, returns its reason, and nothing of it is left."""
        await self._take_off(intention.drop)
        await self._runtime.blocking(between)
        deployment = self._deployment(intention, readers)
        try:
            await deployment.run()
        except AnabranchError as error:
            await self._protector.forget(deployment.task_names)
            return error
        return None

    # -- what comes before what it replaces goes -------------------------------------------------

    def intend(
        self,
        add: Iterable[AnyDef],
        drop: Iterable[AnyDef] = (),
        replace: Iterable[AnyDef] = (),
        number: int | None = None,
    ) -> tuple[int, Intention]:
        """Writes down that `add` is going to run beside the existing definitions, and that `drop`
        will then go: from now on sites may run it. `number` is the intention whose place this
        takes.
        """
        new = created(add, self._catalog.definitions(), self._catalog.next_number())
        intention = Intention(
            add=tuple(new), drop=tuple(drop), replace=tuple(replace), drops_first=False
        )
        return self._catalog.intend(intention, number), intention

    def give_up(self, number: int) -> None:
        """Gives the intention up; nothing of it is at any site."""
        self._catalog.change((), (), intention=number)

    async def exchange(
        self,
        number: int,
        intention: Intention,
        begins: Mapping[str, int] | None = None,
        attached: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Carries out what `intend` has written down. If a site refuses, nothing has changed. See
        `Rollout` for `begins` and `attached`.
        """
        then = self._then(intention)
        try:
            if intention.add:
                new = intention.add
                await Rollout(self._sites, new, then, begins=begins, attached=attached).run()
        except AnabranchError:
            self.give_up(number)
            raise
        try:
            await self._take_off(intention.drop, then)
            gone = [one.name for one in intention.drop]
            self._catalog.change(intention.add, gone, intention.replace, intention=number)
        except Exception:
            self.left[number] = intention
            raise

    async def _take_off(
        self, definitions: Iterable[AnyDef], known: Definitions | None = None
    ) -> None:
        kept = dict(known or self._catalog.definitions())
        for definition in definitions:
            await self._protector.forget(await undeploy(self._sites, definition, kept))
            del kept[definition.name]

    def _deployment(
        self, intention: Intention, readers: Mapping[str, str] | None = None
    ) -> Rollout:
        new = intention.add
        return Rollout(self._sites, new, self._then(intention), readers, self._protector)

    def _then(self, intention: Intention) -> dict[str, AnyDef]:
        """The definitions that exist when it is deployed."""
        gone = {one.name for one in intention.drop} if intention.drops_first else set()
        known = self._catalog.definitions()
        left = {name: one for name, one in known.items() if name not in gone}
        return left | {one.name: one for one in intention.add}

    # -- what is left ----------------------------------------------------------------------------

    async def recover(self) -> None:
        """Completes or takes back what is left."""
        while self.left:
            number, intention = next(iter(self.left.items()))
            said = await self._recover(number, intention)
            del self.left[number]
            self._held.discard(number)
            self._turns.give_back(self._touched(intention))
            self._say(f"the statement that was interrupted {said}")

    async def _recover(self, number: int, intention: Intention) -> str:
        gone = [one.name for one in intention.drop]
        dropped = ", ".join(gone)
        names = ", ".join(one.name for one in intention.add)
        if intention.add and await self._complete(intention):
            self._catalog.change(intention.add, gone, intention.replace, intention=number)
            return f"is done: {names} created"
        await self._take_back(intention)
        if not gone or not intention.drops_first:
            self._catalog.change((), (), intention=number)
            return f"is taken back: {names} not created"
        await self._take_off(intention.drop)
        if again := await self._again(number, intention):
            self._catalog.change(again.add, gone, intention=number)
            return f"is done: {dropped} dropped, {names} created"
        self._catalog.change((), gone, intention=number)
        only = f", {names} could not be created" if names else ""
        return f"is done: {dropped} dropped{only}"

    async def _complete(self, intention: Intention) -> bool:
        """Whether all additions run at their sites, in this creation of them; their sources begin
        now if they have not.
        """
        wanted = _wanted(intention.add, self._then(intention))
        if not wanted or not await self._are_up(wanted):
            return False
        try:
            for site, expected in wanted.items():
                report = await self._sites.call(site, Status(), STATUS_S)
                if not expected.items() <= _ready(report).items():
                    return False
            await self._deployment(intention).start_sources()
        except AnabranchError:
            return False
        return True

    async def _are_up(self, sites: Collection[str]) -> bool:
        deadline = self._runtime.now() + AWAY_S
        while not set(sites) <= set(self._sites.alive()):
            if self._runtime.now() > deadline:
                return False
            await self._runtime.sleep(LOOK_S)
        return True

    async def _take_back(self, intention: Intention) -> None:
        deployment = self._deployment(intention)
        await deployment.take_back()
        await self._protector.forget(deployment.task_names)

    async def _again(self, number: int, intention: Intention) -> Intention | None:
        """Deploys from its beginning what was to replace what has gone; None if that fails. The
        creation of an approximate query clears its results.
        """
        if not intention.add or any(isinstance(one, ApproximateDef) for one in intention.add):
            return None
        then = self._then(intention.model_copy(update={"add": ()}))
        new = created(map(_another_run, intention.add), then, self._catalog.next_number())
        again = intention.model_copy(update={"add": tuple(new)})
        self._catalog.intend(again, number)
        deployment = self._deployment(again)
        if not await self._are_up(_wanted(new, self._then(again))):
            return None
        try:
            await deployment.run()
        except AnabranchError as error:
            self._say(error.line())
            await self._protector.forget(deployment.task_names)
            return None
        return again


def created(add: Iterable[AnyDef], known: Mapping[str, AnyDef], number: int) -> list[AnyDef]:
    """New definitions, with the number of their creation. Nodes that run for others in `known` keep
    theirs.
    """
    running = {task.name: task.born for task in tasks(known.values(), known)}
    return [_created(one, running, number) for one in add]


def _created(definition: AnyDef, running: Mapping[str, int], number: int) -> AnyDef:
    if not isinstance(definition, StreamDef | TableDef | QueryDef | PocketDef):
        return definition
    update: dict[str, object] = {"born": number}
    if isinstance(definition, QueryDef):
        names = [node.name for node in definition.nodes]
        update["inherited"] = {name: running[name] for name in names if name in running}
    return definition.model_copy(update=update)


def _another_run(definition: AnyDef) -> AnyDef:
    """The definition with a run of its own for its sinks, too."""
    if not isinstance(definition, QueryDef) or not definition.run:
        return definition
    return definition.model_copy(update={"run": new_run()})


def _wanted(new: Iterable[AnyDef], known: Definitions) -> dict[str, dict[str, int]]:
    """Site → the sources and tasks of these that should run there, with their creations."""
    creations: dict[str, dict[str, int]] = {}
    for definition in new:
        if isinstance(definition, StreamDef | TableDef):
            creations.setdefault(definition.site, {})[definition.name] = definition.born
    for task in tasks(new, known):
        creations.setdefault(task.site, {})[task.name] = task.born
    return creations


def _ready(report: SiteReport) -> dict[str, int]:
    """Sources that are there and tasks that have begun, by a site's report."""
    ready = {one.stream: one.born for one in report.sources}
    return ready | {one.name: one.born for one in report.tasks if one.state != "waiting"}


def touched(add: Iterable[AnyDef], drop: Iterable[str], known: Definitions) -> set[str]:
    """The names that a change changes, and those it relies on."""
    names = set(drop)
    for definition in add:
        names.add(definition.name)
        if isinstance(definition, QueryDef | ApproximateDef):
            names |= set(definition.reads)
        if isinstance(definition, PocketDef):
            names |= {definition.input, definition.output}
    return names
