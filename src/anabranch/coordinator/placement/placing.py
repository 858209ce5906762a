"""The coordinator's placement of new queries, and of what runs when the network has changed:
what would move, what that saves, and which deadlines hold.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

from anabranch.config.cluster import ClusterConfig
from anabranch.coordinator.base.catalog import Catalog
from anabranch.coordinator.base.reports import Moved, PlacementReport, Replan
from anabranch.coordinator.base.sites import Sites
from anabranch.coordinator.placement.deadlines import Deadlines, placed_together
from anabranch.coordinator.placement.monitor import Monitor, sample_of
from anabranch.errors import PlacementError
from anabranch.placement.methods import Placer, placer
from anabranch.placement.network import NetworkSamples
from anabranch.placement.picture import picture
from anabranch.placement.problem import MOVE_PENALTY, PlacementProblem, Vertex
from anabranch.placement.reasons import costs_elsewhere, reasons
from anabranch.plan.catalog import AnyDef, PocketDef, QueryDef
from anabranch.plan.definitions import placed, relation, settled_sink
from anabranch.plan.placed import Surroundings
from anabranch.plan.placed import placed as placed_query
from anabranch.plan.rules import rewritten
from anabranch.plan.system import PlacedSystem, allowed
from anabranch.plan.tasks import sink_task
from anabranch.units import show_duration

BREAKS = "a deadline would not hold any more if it moved"


def with_deadlines(
    found: Replan, known: Mapping[str, AnyDef], deadlines: Deadlines, alive: Sequence[str]
) -> Replan:
    """While all deadlines hold, their queries stay where they are. If they do not, these queries
    are placed again before any other.
    """
    if not any(isinstance(one, QueryDef) and one.deadline for one in known.values()):
        return found
    if deadlines.hold(known):
        if not found.moves or deadlines.hold(_after(known, found.moves)):
            return found
        stays = {one.task: BREAKS for one in found.moves}
        return replace(found, after=found.before, moves=(), stays={**found.stays, **stays})
    moves = _moves(known, deadlines, alive)
    tasks = {one.task for one in moves}
    stays = {name: why for name, why in found.stays.items() if name not in tasks}
    return replace(found, after=found.before, moves=tuple(moves), stays=stays)


def _moves(known: Mapping[str, AnyDef], deadlines: Deadlines, alive: Sequence[str]) -> list[Moved]:
    """The moves of what deadlines wait for, to where the deadline program puts it; none if no
    placement helps. They include queries without a deadline that are read by queries with one.
    """
    free: dict[str, tuple[str, ...]] = {}
    was_at: dict[str, str] = {}
    urgent = deadlines.timely(known)
    for query in known.values():
        if not isinstance(query, QueryDef) or query.pinned or query.stages:
            continue
        for node in query.nodes:
            may = allowed(query, own=node.name == query.name, sites=tuple(alive))
            here = [one for one in alive if may is None or one in may]
            here = [one for one in here if one in free.get(node.name, here)]
            if node.name in urgent and node.site in here:
                free[node.name] = tuple(sorted(here, key=lambda site: (site != node.site, site)))
                was_at[node.name] = node.site
        if query.name in free and query.sink and settled_sink(query) is None:
            free[sink_task(query.name)] = free[query.name]
    for one in known.values():
        if isinstance(one, QueryDef) and one.pinned:
            for node in one.nodes:
                free.pop(node.name, None)
    sites = deadlines.sites(known, free)
    return [
        Moved(task, was_at[task], site, why=_why(task, known, deadlines))
        for task, site in sites.items()
        if site != was_at.get(task, site)
    ]


def _why(task: str, known: Mapping[str, AnyDef], deadlines: Deadlines) -> str:
    """The shortest deadline that waits for a task."""
    waiting = [
        (one.deadline.us, name)
        for name, one in known.items()
        if isinstance(one, QueryDef) and one.deadline and task in deadlines.timely(known, name)
    ]
    us, name = min(waiting)
    return f"for DEADLINE {show_duration(us)} of {name}"


def _after(known: Mapping[str, AnyDef], moves: Sequence[Moved]) -> dict[str, AnyDef]:
    """The definitions once these have moved."""
    there = dict(known)
    for move in moves:
        there = {name: placed(one, move.task, move.site) for name, one in there.items()}
    return there


ROUNDS = 4
BUSIEST = 0.9
"""Of a slot's time: what a site is given to do at most."""


class Replanner:
    def __init__(
        self, sites: Sites, monitor: Monitor, placer: Placer, slots: Callable[[str], int]
    ) -> None:
        self._sites = sites
        self._monitor = monitor
        self._placer = placer
        self._slots = slots

    def capacity(self, sites: Sequence[str]) -> dict[str, float]:
        """What each is given to do at most."""
        return {site: BUSIEST * self._slots(site) for site in sites}

    def problem(
        self, known: Mapping[str, AnyDef], penalty: float = MOVE_PENALTY
    ) -> tuple[PlacementProblem, PlacedSystem]:
        """The problem of all that runs, with what sites can take."""
        alive = sorted(self._sites.alive())
        network = self._monitor.network(alive, "lately", self.capacity(alive))
        rates, loads = self._monitor.rates("lately"), self._monitor.loads()
        system = PlacedSystem(known, network, rates, loads)
        return system.problem(penalty), system

    def look(self, known: Mapping[str, AnyDef]) -> Replan:
        """The moves that would pay, including those that pay only once the dearest has moved, since
        a move costs a share of the whole. Raises PlacementError.
        """
        problem, system = self.problem(known)
        now = problem
        for _ in range(ROUNDS):
            found = self._placer.place(now)
            if not found.moves(now):
                break
            there = [
                replace(one, at=found.sites[one.name]) if one.at else one for one in now.vertices
            ]
            now = replace(now, vertices=there)
        moves = tuple(Moved(task, *ways) for task, ways in found.moves(problem).items())
        return Replan(problem.cost(problem.present), found.cost, moves, system.stays)

    def cost(self, known: Mapping[str, AnyDef]) -> float:
        """The cost of the present placement, by the newest sample."""
        network = self._monitor.network(sorted(self._sites.alive()), "now")
        problem = PlacedSystem(known, network, self._monitor.rates("now")).problem()
        return problem.cost(problem.present)

    def picture(self, known: Mapping[str, AnyDef]) -> str:
        """A picture of what runs, on its sites."""
        problem, _ = self.problem(known, penalty=0.0)
        return picture(problem, problem.named(problem.present))

    def standby_costs(self, known: Mapping[str, AnyDef], task: str) -> dict[str, float]:
        """The cost of a task at each site where it is not; empty if that is not known."""
        try:
            problem, _ = self.problem(known, penalty=0.0)
        except PlacementError:
            return {}
        if task not in problem.index:
            return {}
        return costs_elsewhere(problem, problem.named(problem.present), task)

    def placement(self, known: Mapping[str, AnyDef]) -> dict[str, PlacementReport]:
        """For each operator that the system places, and for pockets: the site, its share of the
        cost, the runner-up or why it stays, and all that as `text`.
        """
        free = {
            node.name
            for one in known.values()
            if isinstance(one, QueryDef) and not one.pinned
            for node in one.nodes
        }
        free |= {one.name for one in known.values() if isinstance(one, PocketDef)}
        if not free:
            return {}
        try:
            problem, system = self.problem(known, penalty=0.0)
        except PlacementError:
            return {}
        total = problem.cost(problem.present)
        found = reasons(_as_if_new(problem), problem.named(problem.present))
        return {
            name: PlacementReport(
                one.vertex,
                one.site,
                one.cost,
                one.share,
                one.runner_up,
                one.worse,
                one.text(total, system.stays.get(name, "")),
            )
            for name, one in found.items()
            if name in free
        }


def _as_if_new(problem: PlacementProblem) -> PlacementProblem:
    """The problem with pockets that may be anywhere, so that their costs elsewhere are shown,
    too.
    """
    vertices = [
        replace(one, at=None, sites=None) if one.kind == "pocket" else one
        for one in problem.vertices
    ]
    return replace(problem, vertices=vertices)


Running = Mapping[str, str]
"""Nodes that run already → their sites."""


class Placing:
    def __init__(self, sites: Sites, catalog: Catalog, cluster: ClusterConfig) -> None:
        self._sites = sites
        self._catalog = catalog
        self._placer = placer(cluster.placement.method)
        self.monitor = Monitor(catalog, cluster.placement)
        self.deadlines = Deadlines(sites, catalog, cluster, self.monitor.latency)
        self._replanner = Replanner(
            sites,
            self.monitor,
            self._placer,
            lambda site: cluster.sites[site].slots if site in cluster.sites else 1,
        )

    def begin(self, query: QueryDef, known: Mapping[str, AnyDef], running: Running) -> QueryDef:
        """Somewhere: at its first stream's site, if it may be there. Raises PlacementError if what
        it needs is not there."""
        if not query.pinned:
            query = self._somewhere(query, known)
        return rewritten(query, partial(relation, known), running)

    def _somewhere(self, query: QueryDef, known: Mapping[str, AnyDef]) -> QueryDef:
        alive = sorted(self._sites.alive(), key=lambda site: (site != query.site, site))
        may = allowed(query, own=True, sites=tuple(alive))
        reads = (relation(known, name) for name in query.reads)
        needs = [Vertex(one.name, "source", frozenset({one.site})) for one in reads]
        own = PlacementProblem(
            [Vertex(query.name, sites=may), *needs], [], NetworkSamples.unmeasured(alive)
        )
        site = alive[int(own.allowed[0].argmax())]
        written = query.written.model_copy(update={"site": site})
        return query.model_copy(update={"site": site, "written": written})

    def together(
        self,
        new: Collection[str],
        added: Sequence[AnyDef],
        known: Mapping[str, AnyDef],
        running: Running,
    ) -> dict[str, AnyDef]:
        """Those definitions of `known` that are `new` and may be anywhere, placed as one problem
        with all that runs; queries that deadlines wait for, where these hold. What is `added` is
        there then, too. Raises PlacementError."""
        found = self._placed(new, known, running) if new else {}
        there = {**known, **found}
        names = [one.name for one in added]
        alive = sorted(self._sites.alive())
        timely = placed_together(
            [there[name] for name in names], there, running, self.deadlines, alive
        )
        return {**found, **timely}

    def _placed(
        self, new: Collection[str], known: Mapping[str, AnyDef], running: Running
    ) -> dict[str, AnyDef]:
        first = {getattr(known[name], "site", "") for name in new}
        alive = sorted(self._sites.alive(), key=lambda site: (site not in first, site))
        network = self.monitor.network(alive, capacity=self._replanner.capacity(alive))
        around = Surroundings(network, self.monitor.rates(), self.monitor.loads(), running)
        return placed_query(new, known, around, self._placer)

    def look(self, now: float) -> None:
        """Takes a sample if one is due."""
        if self.monitor.due(now):
            records = filter(None, map(self._sites.record, self._sites.alive()))
            self.monitor.add(
                now, sample_of(time.time(), [one.report for one in records if one.report])
            )

    def again(self) -> Replan:
        """The moves that would pay now. Raises PlacementError."""
        known = self._catalog.definitions()
        found = self._replanner.look(known)
        return with_deadlines(found, known, self.deadlines, sorted(self._sites.alive()))

    def moved(self) -> None:
        """Takes note that the moves of `again` have been made."""
        self.deadlines.renew()

    def cost(self) -> float:
        return self._replanner.cost(self._catalog.definitions())

    def report(self) -> dict[str, PlacementReport]:
        """Why everything is where it is, for the status."""
        return self._replanner.placement(self._catalog.definitions())

    def picture(self) -> str:
        return self._replanner.picture(self._catalog.definitions())

    def standby_costs(self, task: str, known: Mapping[str, AnyDef]) -> dict[str, float]:
        """The cost of a task at each site where it is not."""
        return self._replanner.standby_costs(known, task)

    def notes(self, known: dict[str, AnyDef]) -> dict[str, str]:
        """For EXPLAIN: why each operator that the system places is where it is."""
        found = self._replanner.placement(known) if len(self._sites.alive()) > 1 else {}
        return {name: f"placed: {one.text}" for name, one in found.items()}
