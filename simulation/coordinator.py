"""One life of the coordinator's process: its control, with a simulated network."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from anabranch.coordinator.base.reports import Moved
from anabranch.coordinator.base.sites import Sites
from anabranch.coordinator.control.control import Control
from anabranch.coordinator.placement.placing import Placing
from anabranch.coordinator.placement.replacement import Replacement
from anabranch.errors import AnabranchError
from anabranch.link.gate import Credentials
from anabranch.link.messages import SendReport
from anabranch.link.peer import Peers
from anabranch.plan.catalog import AnyDef, QueryDef
from anabranch.plan.service_levels import Standby
from anabranch.runtime.troubles import ENVIRONMENT
from simulation.clock import Process
from simulation.faults import COORDINATOR
from simulation.network import Host, SimNetwork

if TYPE_CHECKING:
    from simulation.user import Attempt
    from simulation.world import World


class SimCoordinator:
    def __init__(self, world: World) -> None:
        plan = world.plan
        self._world = world
        self.process = Process(COORDINATOR, world.clock, world.rng, world.skew(COORDINATOR))
        network = SimNetwork(world.wires, self.process, plan.sites)
        self._heartbeat_s = plan.pace.heartbeat / 1000
        gone_after_s = 2 * self._heartbeat_s * plan.pace.missed
        self._sites = Sites(
            world.catalog, self.process, network, Peers(Credentials("")), gone_after_s, plan.sites
        )
        self.placing = Placing(self._sites, world.catalog, plan.cluster)
        self.control = Control(
            self.process,
            self._sites,
            world.catalog,
            self._heartbeat_s,
            self._say,
            self._look,
            self.placing.standby_costs if plan.replan_ms else lambda task, known: {},
        )
        self.replacement = Replacement(
            self.process, self.control, self.placing, plan.replan_ms / 1000, self._say
        )
        if world.catalog.definitions():
            self.process.spawn(self._settle(), "settle")

    def host(self) -> Host:
        return Host(self.process, {SendReport: lambda asked: self.control.heard(asked.report)})

    def _say(self, line: str) -> None:
        self._world.log(COORDINATOR, line)
        self._world.moved += " took over " in line

    def _look(self) -> None:
        if self._world.plan.replan_ms:
            self.placing.look(self.process.now())
            self.replacement.look()

    def apply(self, add: Sequence[AnyDef], drop: Sequence[str], attempt: Attempt) -> None:
        """As a user's statement."""
        self.process.spawn(self._apply(add, drop, attempt), "apply")

    async def _apply(self, add: Sequence[AnyDef], drop: Sequence[str], attempt: Attempt) -> None:
        try:
            known = self._world.catalog.definitions()
            attempt.outcome = await self.control.apply(add, drop, known, {}) or "it has changed"
        except AnabranchError as error:
            attempt.outcome = error.line()
        except ENVIRONMENT as error:  # as a gate says it
            attempt.outcome = str(error)

    async def _settle(self) -> None:
        """After a restart: once the sites have been heard of."""
        while True:
            await self.process.sleep(6 * self._heartbeat_s)
            with suppress(AnabranchError):
                await self.control.settle()
                return

    def move(self, query: str, site: str) -> None:
        self.process.spawn(self._move(query, site), "move")

    async def _move(self, query: str, site: str) -> None:
        try:
            was_at = await self.control.move(query, site)
            self._world.log(COORDINATOR, f"{query} has moved from {was_at} to {site}")
        except AnabranchError as error:
            self._world.log(COORDINATOR, f"{query} does not move to {site}: {error}")

    def move_all(self, sites: Sequence[tuple[str, str]]) -> None:
        self.process.spawn(self._move_all(sites), "move")

    async def _move_all(self, sites: Sequence[tuple[str, str]]) -> None:
        queries = {
            one.name: one
            for one in self._world.catalog.definitions().values()
            if isinstance(one, QueryDef)
        }
        moves = [
            Moved(task, queries[task].site, site)
            for task, site in sites
            if queries[task].site != site
        ]
        for one in await self.replacement.move(moves):
            said = one.problem or f"has moved from {one.was_at} to {one.site}"
            self._world.log(COORDINATOR, f"{one.task} {said}")

    def unprotect(self, query: str, lasts: int) -> None:
        self.process.spawn(self._unprotect(query, lasts), "unprotect")

    async def _unprotect(self, query: str, lasts: int) -> None:
        found = self._world.catalog.definitions().get(query)
        if not isinstance(found, QueryDef):
            return
        await self.control.protect(query, None)
        await self.process.sleep(lasts / 1000)
        await self.control.protect(query, found.standby or Standby(batch=1))
