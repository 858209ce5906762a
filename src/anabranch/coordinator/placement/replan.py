"""Placing again what runs: which operators would move, what that saves, and moving them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from anabranch.coordinator.base.sites import Sites
from anabranch.coordinator.placement.monitor import RECENT, Monitor
from anabranch.coordinator.placement.moves import Moved, PlacementReport, Replan
from anabranch.errors import PlacementError
from anabranch.placement.methods import Placer
from anabranch.placement.picture import picture
from anabranch.placement.problem import MOVE_PENALTY, Problem
from anabranch.placement.reasons import costs_elsewhere, reasons
from anabranch.plan.catalog import AnyDef, PocketDef, QueryDef
from anabranch.plan.system import System

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

    def problem(
        self, known: Mapping[str, AnyDef], penalty: float = MOVE_PENALTY
    ) -> tuple[Problem, System]:
        """Of all that runs, with what sites can take."""
        alive = sorted(self._sites.alive())
        capacity = {site: BUSIEST * self._slots(site) for site in alive}
        network = self._monitor.network(alive, capacity, last=RECENT)
        system = System(known, network, self._monitor.rates(), self._monitor.loads())
        return system.problem(penalty), system

    def look(self, known: Mapping[str, AnyDef]) -> Replan:
        """What would move: also what pays only once the dearest has moved, since a move costs a
        share of all. Raises PlacementError."""
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
        """Of where everything is, by the newest sample."""
        network = self._monitor.network(sorted(self._sites.alive()), last=1)
        problem = System(known, network, self._monitor.rates()).problem()
        return problem.cost(problem.present)

    def picture(self, known: Mapping[str, AnyDef]) -> str:
        """What runs, on its sites."""
        problem, _ = self.problem(known, penalty=0.0)
        return picture(problem, problem.named(problem.present))

    def standby_costs(self, known: Mapping[str, AnyDef], task: str) -> dict[str, float]:
        """What a task would cost at sites where it is not; empty if that is not known."""
        try:
            problem, _ = self.problem(known, penalty=0.0)
        except PlacementError:
            return {}
        if task not in problem.index:
            return {}
        return costs_elsewhere(problem, problem.named(problem.present), task)

    def placement(self, known: Mapping[str, AnyDef]) -> dict[str, PlacementReport]:
        """Of each operator that the system places, and of pockets: the site, the share of the cost,
        the runner-up or why it stays, and all that as `text`."""
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
        found = reasons(problem, problem.named(problem.present))
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
