"""Deadlines of the whole system: asked before something changes, told to the sites afterwards. A
script's queries on the way to a deadline are placed together.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from anabranch.config.cluster import ClusterConfig
from anabranch.coordinator.base.catalog import Catalog
from anabranch.coordinator.base.sites import PREPARE_S, Sites
from anabranch.coordinator.placement.admission import Admission, Decision, urgent
from anabranch.coordinator.placement.monitor import measured_by
from anabranch.coordinator.placement.workload import Latency
from anabranch.errors import AdmissionError, AnabranchError, SiteError
from anabranch.link.messages import Calibrate, Urgencies
from anabranch.plan.catalog import AnyDef, QueryDef
from anabranch.plan.costs import Measured, TaskCost
from anabranch.plan.definitions import relation, tasks
from anabranch.plan.placed import Spread, settled, spread
from anabranch.plan.service_levels import Urgency
from anabranch.plan.system import allowed
from anabranch.plan.tasks import TaskSpec, sink_task

LOOK_S = 30.0
DRIFT = 2.0
"""Sub-deadlines that would be off by this factor are told of."""


class Deadlines:
    """`latency` gives the time of tuples between sites, as far as it was measured."""

    def __init__(
        self,
        sites: Sites,
        catalog: Catalog,
        cluster: ClusterConfig,
        latency: Callable[[], Latency] = dict,
    ) -> None:
        self._sites = sites
        self._latency = latency
        self._catalog = catalog
        self._looked = float("-inf")
        self._outlook = ""
        self._trials: dict[tuple[str, ...], TaskCost | None] = {}
        self._slots = {name: one.slots for name, one in cluster.sites.items()}

    def admission(self, known: Mapping[str, AnyDef]) -> Admission:
        """The admission, from what sites last reported, and from trials."""
        records = [self._sites.record(name) for name in self._sites.alive()]
        measured = measured_by(one.report for one in records if one and one.report)
        latency = self._latency()
        first = Admission(known, measured, self._slots, latency)
        tried = {task.name: cost for task in first.guessed() if (cost := self._tried(task))}
        if not tried:
            return first
        return Admission(known, replace(measured, tried=tried), self._slots, latency)

    def _tried(self, task: TaskSpec) -> TaskCost | None:
        """The task's cost in a trial at its site. There is one trial for all tasks that do the same
        there.
        """
        what = (task.site, *(one.model_dump_json() for one in (*task.inputs, *task.operators)))
        if what not in self._trials:
            self._trials[what] = self._calibrated(task)
        return self._trials[what]

    def _calibrated(self, task: TaskSpec) -> TaskCost | None:
        try:
            found = self._sites.peer(task.site).send(Calibrate(task), PREPARE_S)
        except AnabranchError:  # the guess remains
            return None
        if found is None:
            return None
        return TaskCost(found.fixed_us / 1e6, found.per_tuple_us / 1e6, "tried")

    def admit(
        self, kept: Mapping[str, AnyDef], new: Sequence[AnyDef]
    ) -> tuple[list[AnyDef], Decision]:
        """The `new` definitions with their sub-deadlines, and the rest of the decision. Raises
        AdmissionError if a deadline would not hold any more.
        """
        known = {**kept, **{one.name: one for one in new}}
        decision = self.admission(known).decide([one.name for one in new])
        changed = {one.name: one for one in urgent(new, decision, known)}
        return [changed.get(one.name, one) for one in new], decision

    def hold(self, known: Mapping[str, AnyDef]) -> bool:
        """Whether all deadlines hold, by what sites last reported."""
        try:
            self.admission(known).decide()
        except AdmissionError:
            return False
        return True

    def timely(self, known: Mapping[str, AnyDef], query: str | None = None) -> set[str]:
        """Tasks on the way to a deadline: to any, or to that of `query`."""
        return Admission(known, Measured(), self._slots).timely(query)

    def sites(
        self, known: Mapping[str, AnyDef], free: Mapping[str, tuple[str, ...]]
    ) -> dict[str, str]:
        """Sites of these tasks with which all deadlines hold; empty if they hold nowhere."""
        return self.admission(known).sites(free)

    def outlook(self) -> str:
        """What is wrong with the promised deadlines, by the present costs of tasks. It is checked
        again after a while only.
        """
        if time.monotonic() - self._looked > LOOK_S:
            self._looked = time.monotonic()
            self._outlook = self._look()
        return self._outlook

    def _look(self) -> str:
        known = self._catalog.definitions()
        try:
            decision = self.admission(known).decide()
        except AdmissionError as error:
            return f"by what tasks cost now {error.line()}"
        off = [
            name
            for one in known.values()
            if isinstance(one, QueryDef)
            for name, before in one.urgencies.items()
            if (now := decision.urgencies.get(name))
            and not 1 / DRIFT < now.deadline_us / before.deadline_us < DRIFT
        ]
        if not off:
            return ""
        return (
            f"costs have drifted: sub-deadlines of {', '.join(off)} should be others;"
            " anabranch replan sets them"
        )

    def renew(self) -> None:
        """Sets sub-deadlines by where tasks are now and what they cost. If the deadlines no longer
        hold, all stays as it is: `outlook` says so.
        """
        known = self._catalog.definitions()
        if any(isinstance(one, QueryDef) and one.deadline for one in known.values()):
            with suppress(AdmissionError):
                self.hurry(self.admission(known).decide())
        self._looked = float("-inf")

    def hurry(self, decision: Decision) -> None:
        """Tells running tasks their new sub-deadlines."""
        known = self._catalog.definitions()
        changed = urgent(list(known.values()), decision, known)
        if not changed:
            return
        self._catalog.replace(changed)
        by_site: dict[str, dict[str, Urgency | None]] = {}
        for task in tasks(changed, self._catalog.definitions()):
            by_site.setdefault(task.site, {})[task.name] = task.urgency
        for site, urgencies in by_site.items():
            with suppress(SiteError):  # one that comes back gets them from the catalog
                self._sites.peer(site).send(Urgencies(urgencies, origin=self._catalog.origin))


Known = Mapping[str, AnyDef]


def placed_together(
    new: Sequence[AnyDef],
    known: Known,
    running: Mapping[str, str],
    deadlines: Deadlines,
    alive: Sequence[str],
) -> dict[str, QueryDef]:
    """The `new` definitions that may be anywhere and that a deadline waits for, at sites where all
    deadlines hold; if they hold nowhere, where the least must be put off. `known` has them too, at
    some place; `running` are nodes that run already, with their sites.
    """
    ours = _timely(new, known, deadlines)
    if not ours:
        return {}
    plans = {one.name: spread(one, partial(relation, known), running) for one in ours}
    others = [one for one in known.values() if isinstance(one, QueryDef) and one.name not in plans]
    fixed = {node.name: node.site for one in others for node in one.nodes}
    apart = {name: plan.at(fixed) for name, plan in plans.items()}
    free = _free(list(apart.values()), fixed, alive)
    sites = deadlines.admission({**known, **apart}).nearest(free)
    if not sites:
        return {}
    return _settled(plans, fixed | sites, known, running)


def _timely(new: Sequence[AnyDef], known: Known, deadlines: Deadlines) -> list[QueryDef]:
    free = [
        one
        for one in new
        if isinstance(one, QueryDef) and not (one.pinned or one.stages or one.part_of)
    ]
    if not free or not any(isinstance(one, QueryDef) and one.deadline for one in new):
        return []
    urgent = deadlines.timely(known)
    return [one for one in free if any(task.name in urgent for task in tasks([one], known))]


def _free(
    queries: Sequence[QueryDef], fixed: Collection[str], alive: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """Task → the sites where it may be, its present site first, because the first of equally good
    sites is taken. A task that two queries share may be where both may be.
    """
    free: dict[str, tuple[str, ...]] = {}
    for query in queries:
        for node in query.nodes:
            if node.name in fixed:
                continue
            may = allowed(query, own=node.name == query.name, sites=tuple(alive))
            here = [
                one
                for one in sorted(alive, key=lambda site: (site != node.site, site))
                if may is None or one in may
            ]
            both = [one for one in free.get(node.name, here) if one in here]
            if both or node.name not in free:
                free[node.name] = tuple(both)
        if query.sink and not query.sink_site:
            free[sink_task(query.name)] = free[query.name]
    return {name: sites for name, sites in free.items() if sites}


def _settled(
    plans: Mapping[str, Spread], sites: Mapping[str, str], known: Known, running: Mapping[str, str]
) -> dict[str, QueryDef]:
    """The queries at their sites, each after those it reads, as in the script."""
    done: dict[str, QueryDef] = {}
    for name, plan in plans.items():
        look = partial(relation, {**known, **done})
        done[name] = settled(plan.query, look, plan.outlined(sites), running)
    return done
