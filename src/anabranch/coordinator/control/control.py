"""Decides what a coordinator asks of sites, and when: deploying, protecting, restoring, moving.

Nothing here waits for one site while others could go on: anything with a name is changed in turn,
and each change talks to its own sites.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from anabranch.coordinator.base.catalog import Catalog
from anabranch.coordinator.base.sites import Sites
from anabranch.coordinator.base.turns import Turn, Turns
from anabranch.coordinator.control.members import Membership
from anabranch.coordinator.control.restorer import Restorer
from anabranch.coordinator.deploy.anew import Anew
from anabranch.coordinator.deploy.move import Move
from anabranch.coordinator.deploy.parts import LostParts
from anabranch.coordinator.deploy.statements import StatementRunner, touched
from anabranch.coordinator.deploy.wanted import WantedThere
from anabranch.coordinator.protection.adoption import Followed, adopt, follow, release
from anabranch.coordinator.protection.protect import Costs, Protector
from anabranch.link.messages import News
from anabranch.link.reports import SiteReport
from anabranch.plan.catalog import AnyDef, PocketDef, QueryDef
from anabranch.plan.definitions import Definitions, protected
from anabranch.plan.service_levels import Standby
from anabranch.runtime.base import Bell, Mutex, Runtime, Spawned

RESTORE_S = 1.0
"""Between two looks, at what sites have reported, whether something that should run does not."""
SETTLE_S, LOOK_S = 30.0, 0.05


class Control:
    """`say` is called with take-overs; `look` is called every `watch_s`."""

    def __init__(
        self,
        runtime: Runtime,
        sites: Sites,
        catalog: Catalog,
        watch_s: float,
        say: Callable[[str], None] = lambda line: None,
        look: Callable[[], None] = lambda: None,
        costs: Costs = lambda task, known: {},
    ) -> None:
        self._runtime = runtime
        self._sites = sites
        self._catalog = catalog
        self._say = say
        self._look = look
        self._costs = costs
        self._turns = Turns(runtime)
        self.protector = Protector(runtime, sites, catalog, self._turns, costs)
        self._lost_parts = LostParts(sites, catalog, self._turns, say)
        self.statements = StatementRunner(runtime, sites, catalog, self.protector, self._turns, say)
        self.restorer = Restorer(runtime, sites, catalog, self.protector, self._turns, say)
        self._anew = Anew(runtime, sites, catalog, self.protector, self._turns, say)
        self.members = Membership(catalog)
        self._moving = Mutex(runtime)
        self._news = Bell(runtime)
        self._settled = False
        """All that was there before a restart of ours has been looked after."""
        self._begun: list[Spawned[Any]] = []
        """What goes on by itself."""
        self._watch_s = watch_s
        self._look_again = runtime.now()
        self._steps = {
            "look": self._look_once,
            "protection": self._protect,
            "restoration": self._restore_missing,
        }
        self._watching = runtime.supervise("the coordinator's watch", self._watch)
        self.wanted = WantedThere(catalog, self.protector)
        self._finishing: Spawned[None] | None = None
        self._finish()

    def close(self) -> None:
        self._watching.cancel()
        for spawned in self._begun:
            spawned.cancel()
        if self._finishing:
            self._finishing.cancel()

    def heard(self, report: SiteReport) -> News:
        """Takes a site's report; returns news for it."""
        self.members.heard(report)
        before = self._sites.record(report.site)
        addresses = self._sites.heartbeat(report)
        self._news.ring()
        if before and before.pid != report.pid:  # it was killed and has come back empty
            self._begin(self.restore())
        wanted = self.wanted.at(report.site)
        return News(addresses, self.protector.routes(), wanted, self._catalog.origin)

    def _begin(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._begun = [one for one in self._begun if not one.done]
        self._begun.append(self._runtime.spawn(coroutine, "control"))

    async def _watch(self) -> None:
        """Sees that what asks for protection has it, and that what should run runs. A step that
        fails is counted and done again in the next round: no other step waits for it.
        """
        while True:
            await self._news.heard(self._watch_s)
            self._begun = [one for one in self._begun if not one.done]
            for name, step in self._steps.items():
                try:
                    await step()
                except Exception as error:
                    self._runtime.failed(f"the coordinator's watch, {name}", error)

    async def _look_once(self) -> None:
        self._look()

    async def _restore_missing(self) -> None:
        if not self._settled or self._runtime.now() <= self._look_again:
            return
        self._look_again = self._runtime.now() + RESTORE_S
        if parts := self._lost_parts.find(self._runtime.now()):
            await self._lost_parts.move(parts)
        await self._lost_parts.tidy()
        if parts or self.restorer.something_is_missing():
            self._begin(self.restore())

    async def _protect(self) -> None:
        if not self.protector.wanted:
            return
        known = self._catalog.definitions()
        moved = self.protector.learn(known)
        if moved:
            for definition in moved:
                self._tell_of(definition, known[definition.name])
            await self.protector.broadcast()
        self._begun += self.protector.look(self._catalog.definitions())

    def _tell_of(self, definition: AnyDef, was: AnyDef) -> None:
        movable = QueryDef | PocketDef
        if (
            isinstance(definition, movable)
            and isinstance(was, movable)
            and definition.site != was.site
        ):
            self._say(
                f"{definition.site} took over {definition.kind} {definition.name} from {was.site}"
            )

    # -- what users ask for ----------------------------------------------------------------------

    async def apply(
        self,
        add: Iterable[AnyDef],
        drop: Iterable[str],
        known: Definitions,
        readers: Mapping[str, str],
        between: Callable[[], None] = lambda: None,
    ) -> bool:
        """Changes the system. False if the facts in `known`, on which the change was decided, no
        longer hold: then nothing has changed. If a site refuses what it is asked to run, only what
        is to be dropped has gone. `readers` maps each new query to the consumer that will follow it
        from its first tuple. `between` is called when the old has gone and the new has not come.
        """
        new, gone = list(add), list(drop)
        names = touched(new, gone, known)
        if not names:
            return True
        try:
            async with self._turns.of(names):
                now = self._catalog.definitions()
                if any(now.get(name) != known.get(name) for name in names):
                    return False
                await self.statements.change(new, gone, readers, between)
        finally:
            self._finish()
        self._settled = True
        self._has_changed()
        return True

    def _finish(self) -> None:
        """Completes or takes back what was begun and not finished."""
        self.statements.hold()
        if self.statements.left and (self._finishing is None or self._finishing.done):
            self._finishing = self._runtime.supervise("unfinished statements", self._recover)

    async def _recover(self) -> None:
        await self.statements.recover()
        self._has_changed()

    def _has_changed(self) -> None:
        self.protector.want(self._catalog.definitions())
        self._news.ring()

    @contextmanager
    def turn(self, names: Iterable[str]) -> Iterator[None]:
        """A turn for a thread: the block may change these, once nobody else does."""
        turn = self._turns.of(names)
        self._runtime.run(turn.__aenter__())
        try:
            yield
        finally:
            self._runtime.run(turn.__aexit__(None, None, None))

    async def protect(self, query: str, standby: Standby | None) -> None:
        """Gives a running query a standby, or takes it away."""
        async with self._turns.of([query]):
            known = self._catalog.definitions()
            definition = known.get(query)
            if not isinstance(definition, QueryDef):
                return
            changed = definition.model_copy(update={"standby": standby})
            self._catalog.replace([changed])
            names = protected({**known, query: changed.model_copy(update={"standby": Standby()})})
            for name in names.keys() & {node.name for node in definition.nodes}:
                if standby:
                    adopt(self.protector, name, {**known, query: changed})
                else:
                    await release(self.protector, self._sites, name)
        self._news.ring()

    async def stand_by(self, query: str, site: str) -> None:
        """Makes a site the standby of a query that has one, instead of the present standby."""
        async with self._turns.of([query]):
            known = self._catalog.definitions()
            definition = known.get(query)
            if isinstance(definition, QueryDef) and definition.standby:
                await self.protector.post(query, site, definition.standby, known)

    async def move(self, query: str, site: str) -> str:
        """Moves a query to another site, without loss or repetition; returns its former site."""
        async with self._moving:
            return await self.mover().run(query, site)

    def mover(self) -> Move:
        return Move(self._runtime, self._sites, self._catalog, self.protector, self._turns)

    async def follow(self) -> list[Followed]:
        """Moves standbys to where the network is better now; returns task, from where, to where."""
        known = self._catalog.definitions()
        return await follow(self._runtime, self.protector, self._turns, self._costs, known)

    # -- after failures --------------------------------------------------------------------------

    def everybodys_turn(self, names: Iterable[str]) -> Turn:
        """`async with`: nobody changes any of these."""
        return self._turns.of(names)

    async def restore(self) -> list[str]:
        """Puts back what sites ran before they were killed, as far as it can go on by now; returns
        the sites that lacked something.
        """
        return await self.restorer.run()

    async def settle(self, wait_s: float = SETTLE_S) -> bool:
        """After a restart: what sites do not run of the catalog goes on where it was, and what
        cannot yet as soon as it can, for as long as we run. Returns whether something was lacking.
        Waits until all has been tried once, but not for ever.
        """
        self._settled = True
        restoring = self._runtime.spawn(self.restore(), "restoring")
        restoring.heard = True
        self._begun.append(restoring)
        deadline = self._runtime.now() + wait_s
        while not restoring.done and self._runtime.now() < deadline:
            await self._runtime.sleep(LOOK_S)
        return bool(await restoring.join()) if restoring.done else True

    @property
    def deploys_anew(self) -> bool:
        """Whether somebody has asked for it, and it has not been done yet."""
        return self._anew.is_begun

    async def deploy_anew(
        self, renew: Callable[[AnyDef], AnyDef], clear: Callable[[Definitions], None]
    ) -> None:
        """Deploys the catalog from the beginning; see `anew`."""
        await self._anew.run(renew, clear)
        self._settled = True
        self._has_changed()
