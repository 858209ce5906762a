"""Gives every protected task a standby, and finds out who runs it after a failure.

Standbys take over by themselves. The coordinator only chooses them, hands out epochs, of which no
two standbys ever get the same, and replaces those that died or have become primaries.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from anabranch.coordinator.base.catalog import Catalog
from anabranch.coordinator.base.reports import ProtectionReport
from anabranch.coordinator.base.sites import Sites
from anabranch.coordinator.base.turns import Turns
from anabranch.coordinator.protection.assignments import Assignment, Assignments, RestartPoints
from anabranch.errors import AnabranchError, SiteError
from anabranch.link.messages import Addresses, Announce, DropTasks, StandBy, Wishes
from anabranch.link.reports import StandbyReport
from anabranch.plan.catalog import AnyDef, PocketDef, QueryDef, StreamDef
from anabranch.plan.definitions import Definitions, placed, protected, sink_along, spec_of
from anabranch.plan.service_levels import Standby
from anabranch.plan.tasks import TaskSpec
from anabranch.runtime.base import Runtime, Spawned
from anabranch.stream.routes import Route

POST_S = 60.0
AT_ONCE_S = 1.7
"""How long a deployment waits for its standbys at most."""
LOOK_S = 0.02
POST_AGAIN_S = 0.2
GRACE_S = 5.0
"""How long a new standby may take to appear in its site's reports."""
RECOVERY_S = 3.0
"""How long one that has taken over is left alone at most, until it has caught up."""
FIRST_BATCH = 100
"""Until the tuner knows better."""


Costs = Callable[[str, Definitions], Mapping[str, float]]
"""What a task's links would cost at each site, as far as that is known."""


class Protector:
    def __init__(
        self,
        runtime: Runtime,
        sites: Sites,
        catalog: Catalog,
        turns: Turns,
        costs: Costs = lambda task, known: {},
    ) -> None:
        self._costs = costs
        self._runtime = runtime
        self._turns = turns
        self._sites = sites
        self._catalog = catalog
        self.assignments = Assignments(catalog)
        self.restart_points = RestartPoints(sites, self.assignments)
        self.problems: dict[str, str] = {}
        """Task → why it has no standby."""
        self._posted: dict[str, float] = {}
        self._begun: dict[str, float] = {}
        self._succeeded: dict[str, float] = {}
        self.wanted = False
        self.want(catalog.definitions())

    def want(self, known: Definitions) -> None:
        """Looks whether there is anything to protect."""
        self.wanted = bool(protected(known)) or bool(self.assignments.items())

    def look(self, known: Definitions) -> list[Spawned[None]]:
        """Begins to replace the standbys that are gone, each by itself, so that a site that hangs
        delays no other. A task that has only been moved gets a standby when it is gone itself, at
        its own site, to come back by it. What is just being changed is left alone.
        """
        wanted, begun = protected(known), []
        for name, assignment in self.assignments.items():
            lost = not self._runs(name, assignment) and assignment.site in self._sites.alive()
            standby = wanted.get(name) or (Standby(batch=1) if lost else None)
            if not standby or not self._turns.free([changed_with(name, known)]):
                continue
            if not (self._standby_is_well(name, assignment) or self._recovers(name, assignment)):
                posting = self._post_in_turn(name, standby, known)
                begun.append(self._runtime.spawn(posting, f"post-{name}"))
                self._turns.take({changed_with(name, known)})
        return begun

    async def look_at_once(self, names: Iterable[str], known: Definitions) -> None:
        """Before tuples flow: posts standbys of these tasks, if that does not take long."""
        wanted = protected(known)
        posts = [
            self._posted_once(name, wanted[name], known)
            for name in names
            if name in wanted
            and (assignment := self.assignments.get(name))
            and not self._standby_is_well(name, assignment)
        ]
        begun = self._runtime.spawn(self._runtime.outcomes(posts), "first standbys")
        deadline = self._runtime.now() + AT_ONCE_S
        while not begun.done and self._runtime.now() < deadline:
            await self._runtime.sleep(LOOK_S)

    async def _posted_once(self, name: str, standby: Standby, known: Definitions) -> None:
        with suppress(AnabranchError):
            await self._post(name, standby, known)

    async def _post_in_turn(self, name: str, standby: Standby, known: Definitions) -> None:
        turn = {changed_with(name, known)}
        try:
            if self.assignments.get(name):
                await self._post(name, standby, self._catalog.definitions())
        except AnabranchError:
            await self._runtime.sleep(POST_AGAIN_S)
        finally:
            self._turns.give_back(turn)

    def learn(self, known: Definitions) -> list[AnyDef]:
        """Learns which standbys have taken over, and returns what has moved, as the catalog has it
        now. If the disk refuses it, nothing is learnt, and the next call learns all of it.
        """
        moved: dict[str, AnyDef] = {}
        successors: dict[str, Assignment] = {}
        for name, assignment in self.assignments.items():
            newest, epoch = self._newest(name, assignment)
            if epoch <= assignment.epoch:
                continue
            successors[name] = assignment.succeeded(newest, epoch)
            for definition in known.values():
                now_placed = placed(moved.get(definition.name, definition), name, newest)
                if isinstance(definition, StreamDef) and definition.name == assignment.stream:
                    now_placed = definition.model_copy(update={"site": newest})
                if now_placed != definition:
                    moved[definition.name] = now_placed
        if moved:
            self._catalog.replace(moved.values())
        for name, successor in successors.items():
            self._succeeded[name] = self._begun[name] = self._runtime.now()
            self.assignments.set(name, successor)
        return list(moved.values())

    def _newest(self, name: str, assignment: Assignment) -> tuple[str, int]:
        """The primary of the latest epoch, and that epoch, from the reports of primaries and of
        those they told. A primary that died just after it told them still counts, so that it is
        replaced.
        """
        reported = list(self._reported(name, "primary").items())
        for site in self._sites.alive():
            record = self._sites.record(site)
            if record and record.report and assignment.stream in record.report.producers:
                reported.append(record.report.producers[assignment.stream])
        return max(reported, key=lambda one: one[1], default=(assignment.site, assignment.epoch))

    def routes(self) -> dict[str, Route]:
        """The routes for the sites: stream → who produces it and who stands by."""
        return {
            r.stream: Route(r.site, r.epoch, r.standby, r.claim)
            for _, r in self.assignments.items()
        }

    def standby_of(self, stream: str) -> str | None:
        return next((r.standby for _, r in self.assignments.items() if r.stream == stream), None)

    def stands_by(self, name: str) -> str | None:
        """The site that would take a task over now."""
        assignment = self.assignments.get(name)
        return assignment.standby if assignment else None

    async def forget(self, names: Iterable[str]) -> None:
        """Forgets these tasks, which are dropped, at every site that stands by or has just taken
        over.
        """
        gone = [name for name in names if self.assignments.get(name)]
        if gone:
            await self._sites.ask(DropTasks(tuple(gone)))
        for name in gone:
            self.assignments.forget(name)
            self.problems.pop(name, None)

    def report(self) -> dict[str, ProtectionReport]:
        """The reports, by task."""
        return {
            name: ProtectionReport(
                one.site,
                one.epoch,
                one.standby,
                one.claim,
                one.stream,
                self.problems.get(name, ""),
                self._protects(name, one),
            )
            for name, one in self.assignments.items()
        }

    def filled(self, known: Definitions) -> set[str]:
        """Streams of pockets that may have moved: they are where the pocket is."""
        return {
            one.output
            for one in known.values()
            if isinstance(one, PocketDef) and self.keeps(one.name)
        }

    def in_hand(self, name: str) -> bool:
        """Whether a live standby of the task is about to take over, or has already."""
        assignment = self.assignments.get(name)
        return assignment is not None and self._standby_is_well(name, assignment)

    async def appoint(
        self,
        specs: Sequence[TaskSpec],
        known: Definitions,
        starts: Mapping[str, tuple[int, ...]],
    ) -> dict[str, tuple[int, int]]:
        """The incarnations of tasks that are created to begin after `starts`; and for those that
        may ever be taken over, the epoch in which they begin. All sites learn it before a task
        runs, so that its readers do not look for it at an earlier site.
        """
        self.assignments.create({spec.name: starts[spec.name] for spec in specs})
        wanted = protected(known)
        epochs = {}
        for spec in specs:
            known_assignment = self.assignments.get(spec.name) or self.assignments.had(spec.name)
            if spec.output and (spec.name in wanted or known_assignment):
                epoch = epochs[spec.name] = self.assignments.next_epoch()
                self.assignments.set(
                    spec.name, Assignment(spec.site, epoch, None, epoch, spec.output)
                )
                self._begun[spec.name] = self._runtime.now()
        if epochs:
            await self.broadcast()
        return {
            spec.name: (self.assignments.incarnation(spec.name), epochs.get(spec.name, 0))
            for spec in specs
        }

    def keeps(self, name: str) -> bool:
        """Whether the task is put back only by a standby at its site; this includes the sink that
        goes with it.
        """
        return self.assignments.get(name) is not None

    # -- choosing --------------------------------------------------------------------------------

    def _reported(self, name: str, role: str) -> dict[str, int]:
        """Sites that say they run the task in this role → its epoch there. A primary whose query
        failed stays primary: another would fail as well.
        """
        epochs = {}
        for site in self._sites.alive():
            record = self._sites.record(site)
            for task in record.tasks if record else ():
                if task.name == name and task.role == role:
                    by_itself = role == "primary" and not task.cut_off
                    if task.state != "failed" or by_itself:
                        epochs[site] = task.epoch
        return epochs

    def _standby_is_well(self, name: str, assignment: Assignment) -> bool:
        """Whether it stands by, or has taken over and we are about to learn it."""
        if assignment.standby is None:
            return False
        if any(
            self._reported(name, role).get(assignment.standby) == assignment.claim
            for role in ("standby", "primary")
        ):
            return True
        posted = self._posted.get(name, -math.inf)
        return assignment.standby in self._sites.alive() and self._runtime.now() - posted < GRACE_S

    def _runs(self, name: str, assignment: Assignment) -> bool:
        """Whether it runs, as far as we know: a task that was begun a moment ago has not been
        reported yet.
        """
        begun = self._begun.get(name, -math.inf)
        return (
            assignment.site in self._reported(name, "primary")
            or self._runtime.now() - begun < GRACE_S
        )

    def _protects(self, name: str, assignment: Assignment) -> bool:
        standby = self._standby_report(name, assignment.standby)
        return standby is not None and standby.protects

    def _recovers(self, name: str, assignment: Assignment) -> bool:
        """Whether it has just taken over: catching up comes before its own standby."""
        if self._runtime.now() - self._succeeded.get(name, -RECOVERY_S) > RECOVERY_S:
            return False
        standby = self._standby_report(name, assignment.site)
        return standby is None or "recovered" not in standby.timeline

    def _standby_report(self, name: str, site: str | None) -> StandbyReport | None:
        """A site's report of a task that stands by there, or has done so."""
        record = self._sites.record(site) if site else None
        reports = (task.standby for task in (record.tasks if record else ()) if task.name == name)
        return next(reports, None)

    def choose(
        self,
        spec: TaskSpec,
        assignment: Assignment,
        wanted: str | None,
        costs: Mapping[str, float] | None = None,
    ) -> str | None:
        """A site for the standby: the one asked for if it is up, or else one that does not die with
        the primary, preferably not with the primary's producers either, from where its links cost
        least, and that has little to do. If the primary is dead, the posted standby takes over:
        then its former site is best.
        """
        alive = self._sites.alive()
        if assignment.site in alive and not self._runs(spec.name, assignment):
            return assignment.site
        others = [
            site for site in alive if site != assignment.site and not self._sites.silent(site)
        ]
        if wanted in others:
            return wanted
        feeding = {source.site for source in spec.inputs}
        apart = [site for site in others if not self._sites.together(site, assignment.site)]
        costs = costs or {}
        worst = max(costs.values(), default=0.0)

        def rank(site: str) -> tuple[bool, float, tuple[int, str]]:
            return site in feeding, costs.get(site, worst), self._load(site)

        return min(apart, key=rank, default=None)

    def _load(self, site: str) -> tuple[int, str]:
        record = self._sites.record(site)
        return len(record.tasks) if record else 0, site

    # -- posting ---------------------------------------------------------------------------------

    async def _post(self, name: str, standby: Standby, known: Definitions) -> None:
        assignment = self.assignments[name]
        costs = await self._runtime.blocking(self._costs, name, known)
        site = self.choose(spec_of(name, known), assignment, standby.on, costs)
        if site is None:
            self.problems[name] = f"no site but {assignment.site} is up that could stand by"
            return
        try:
            await self.post(name, site, standby, known)
            self.problems.pop(name, None)
        except AnabranchError as error:
            self.problems[name] = error.line()
            raise

    async def post(self, name: str, site: str, standby: Standby, known: Definitions) -> None:
        """Makes `site` the standby of a task, instead of the one before."""
        assignment = self.assignments[name]
        if assignment.standby and assignment.standby != site:
            with suppress(AnabranchError):
                await self._sites.reach(assignment.standby, DropTasks(standbys=(name,)))
        spec = spec_of(name, known)
        points = await self.restart_points.points()
        point = await self.restart_points.start(spec, points)
        consumers = self.restart_points.consumers(spec, known, points)
        if any(one.after < point.output for one in consumers.values()):
            raise SiteError(f"a reader of {name} needs more than is known of it")
        claim = self.assignments.next_epoch()
        await self._sites.call(site, Addresses(self._sites.addresses()))
        await self._sites.call(site, Announce(self.routes()))
        post = StandBy(
            task=spec.model_copy(update={"site": site}),
            point=point,
            primary=assignment.site,
            epoch=claim,
            batch=standby.batch or FIRST_BATCH,
            codec=standby.compress,
            wishes=Wishes(
                standby.batch,
                standby.recovery_us / 1e6 if standby.recovery_us else None,
                standby.overhead,
            ),
            consumers=consumers,
            sink=sink_along(spec, site, known),
        )
        await self._sites.call(site, post, POST_S)
        now = self.assignments.get(name)
        if now is None or now.epoch > assignment.epoch:
            return  # dropped, or taken over by who stood by before: then it is told so
        self._posted[name] = self._runtime.now()
        self.assignments.set(name, replace(now, standby=site, claim=claim))
        await self.broadcast()

    async def broadcast(self) -> None:
        """Tells all sites; those that miss it learn it with their next heartbeat."""
        await self._sites.ask(Announce(self.routes()))


def changed_with(name: str, known: Definitions) -> str:
    """The name that changes when a standby of this task is posted: the query it belongs to."""
    for definition in known.values():
        if isinstance(definition, QueryDef) and any(node.name == name for node in definition.nodes):
            return definition.name
    return name
