"""Moves a query to another site while it runs: a standby is posted there and told to take over.

It is the take-over after a failure, only that nothing has failed: the query's readers are sent what
they lack, and nothing twice. One node moves at a time, the query's own or one that was made out of
it; a sink stays where it writes.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from anabranch.coordinator.base.catalog import Catalog
from anabranch.coordinator.base.sites import Sites, nearest
from anabranch.coordinator.base.turns import Turn, Turns
from anabranch.coordinator.protection.adoption import adopt
from anabranch.coordinator.protection.protect import Protector, changed_with
from anabranch.errors import AnabranchError, ConfigError, SiteError, TaskError
from anabranch.link.messages import Status, TakeOver
from anabranch.link.reports import TaskReport
from anabranch.plan.catalog import QueryDef
from anabranch.plan.definitions import spec_of
from anabranch.plan.service_levels import Standby
from anabranch.plan.tasks import TaskSpec
from anabranch.runtime.base import Mutex, Runtime

POST_S = 10.0
"""For so long it is tried to have a standby begin."""
CATCH_UP_S = 60.0
"""How long the standby may take until it could take over."""
TAKE_OVER_S = 30.0
LEAVE_S = 10.0
"""The old primary finds out by itself; for so long we wait for it."""
LOOK_S = 0.05
STATUS_S = 3.0
AT_ONCE = 1
"""The standby's batch: it is there only to catch up, so it gets each tuple as it comes."""


class Move:
    """It changes the query in turn with others. It never holds the turn while it waits, because the
    watcher, who notes the take-over, needs the turn too.
    """

    def __init__(
        self,
        runtime: Runtime,
        sites: Sites,
        catalog: Catalog,
        protector: Protector,
        turns: Turns,
    ) -> None:
        self._runtime = runtime
        self._sites = sites
        self._catalog = catalog
        self._protector = protector
        self._turns = turns

    async def run(self, name: str, site: str, taking_over: Mutex | None = None) -> str:
        """Moves the query or node and returns its former site; raises if it is still there.
        `taking_over` is held from the moment the standby is asked to take over until it is primary.
        """
        task = self._task(name)
        await self._check(task, site)
        before, name = task.site, task.name
        claim = await self._posted(task, site)
        try:
            await self._wait(name, site, CATCH_UP_S, partial(self._ready, site, claim))
            async with taking_over or Mutex(self._runtime):
                await self._sites.call(site, TakeOver(name))
                await self._wait(name, site, TAKE_OVER_S, partial(self._is_primary, site, claim))
        except AnabranchError:
            async with self._turn(name):
                await self._call_off(name, claim)
            raise
        with suppress(TaskError):
            await self._wait(name, site, LEAVE_S, partial(self._has_left, before))
        return before

    async def timed(self, name: str, site: str, taking_over: Mutex) -> float | None:
        """Runs `run`; returns the milliseconds from the request to take over until the new primary
        had caught up.
        """
        await self.run(name, site, taking_over)
        times: list[float] = []

        async def known(name: str) -> bool:
            for task in await self._reported(site, name):
                timeline = task.standby.timeline if task.standby else {}
                if "noticed" in timeline and "recovered" in timeline:
                    times.append(1e3 * (timeline["recovered"] - timeline["noticed"]))
            return bool(times)

        with suppress(TaskError):
            await self._wait(name, site, LEAVE_S, known)
        return times[0] if times else None

    def _turn(self, task: str) -> Turn:
        return self._turns.of([changed_with(task, self._catalog.definitions())])

    # -- before ----------------------------------------------------------------------------------

    def _task(self, name: str) -> TaskSpec:
        known = self._catalog.definitions()
        nodes = {
            node.name for one in known.values() if isinstance(one, QueryDef) for node in one.nodes
        }
        if name in nodes:
            return spec_of(name, known)
        definition = next((one for key, one in known.items() if key.lower() == name.lower()), None)
        queries = [one.name for one in known.values() if isinstance(one, QueryDef)]
        if definition is None:
            raise ConfigError(f"unknown query '{name}'", remedy=nearest(name, queries, "Queries"))
        if not isinstance(definition, QueryDef):
            raise ConfigError(
                f"{definition.name} is a {definition.kind}", remedy="Only queries move."
            )
        return spec_of(definition.name, known)

    async def _check(self, query: TaskSpec, site: str) -> None:
        if site == query.site:
            raise ConfigError(f"query {query.name} is at {site} already")
        if site not in self._sites.alive():
            problem, remedy = self._sites.absence(site)
            raise SiteError(problem, remedy=remedy)
        if query.keep:
            raise ConfigError(
                f"query {query.name} cannot be moved: what is kept of it is at {query.site}",
                remedy="Drop it and create it again AT the other site: that keeps what comes then.",
            )
        for task in await self._reported(query.site, query.name):
            if task.error:
                raise TaskError(
                    f"query {query.name} has failed", remedy="Drop it and create it again."
                )

    async def _posted(self, task: TaskSpec, site: str) -> int:
        """Calls `_post`, and again if the task's restart point moved on meanwhile: its readers
        move, too, and are asked one after the other.
        """
        deadline = self._runtime.now() + POST_S
        while True:
            try:
                async with self._turn(task.name):
                    return await self._post(task, site)
            except SiteError:
                if self._runtime.now() > deadline:
                    raise
            await self._runtime.sleep(LOOK_S)

    async def _post(self, query: TaskSpec, site: str) -> int:
        """The epoch in which the standby at `site` will be primary. A standby that is already there
        will do.
        """
        known = self._catalog.definitions()
        if spec_of(query.name, known).born != query.born:
            raise TaskError(f"query {query.name} was dropped, and is another now")
        assignment = adopt(self._protector, query.name, known)
        if assignment.standby != site or not self._protector.in_hand(query.name):
            await self._protector.post(query.name, site, Standby(batch=AT_ONCE), known)
        return self._protector.assignments[query.name].claim

    # -- waiting ---------------------------------------------------------------------------------

    async def _wait(
        self,
        name: str,
        site: str,
        seconds: float,
        true: Callable[[str], Coroutine[Any, Any, bool]],
    ) -> None:
        deadline = self._runtime.now() + seconds
        while not await true(name):
            if self._runtime.now() > deadline:
                raise TaskError(
                    f"query {name} could not be moved to {site} within {seconds:g} s",
                    remedy="It goes on where it was; `anabranch status` shows what is amiss.",
                )
            await self._runtime.sleep(LOOK_S)

    async def _ready(self, site: str, claim: int, name: str) -> bool:
        assignment = self._protector.assignments.get(name)
        if assignment is None or claim not in (assignment.claim, assignment.epoch):
            raise TaskError(f"query {name} was dropped or protected anew while it moved")
        tasks = [task for task in await self._reported(site, name) if task.epoch == claim]
        for error in (task.error for task in tasks if task.error):
            raise TaskError(f"query {name} fails at {site}: {error.message}")
        return any(
            task.role == "primary" or (task.standby and task.standby.protects) for task in tasks
        )

    async def _is_primary(self, site: str, claim: int, name: str) -> bool:
        """Whether the site itself says so, and the catalog too."""
        noted = self._task(name).site == site
        return noted and any(
            task.epoch >= claim and task.standby and task.standby.guard == "primary"
            for task in await self._reported(site, name)
        )

    async def _has_left(self, site: str, name: str) -> bool:
        return all(task.role != "primary" for task in await self._reported(site, name))

    async def _reported(self, site: str, name: str) -> list[TaskReport]:
        """The tasks of this name at a site, if it answers."""
        try:
            report = await self._sites.call(site, Status(), STATUS_S)
        except SiteError:
            return []
        return [task for task in report.tasks if task.name == name]

    async def _call_off(self, name: str, claim: int) -> None:
        """Removes the standby, unless it has taken over; the routes say so."""
        assignments = self._protector.assignments
        assignment = assignments.get(name)
        if assignment and assignment.claim == claim > assignment.epoch:
            assignments.set(name, replace(assignment, standby=None, claim=assignments.next_epoch()))
            await self._protector.broadcast()
