"""Admission: whether all deadlines hold with one more query, and every task's part of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from anabranch.coordinator.placement.workload import Free, Latency, Workload
from anabranch.deadline.problem import DeadlinePlan, DeadlineProblem
from anabranch.deadline.solve import relaxation, solve
from anabranch.deadline.subdeadlines import Relax
from anabranch.deadline.tasks import ends, tasks_of
from anabranch.errors import AdmissionError
from anabranch.plan.catalog import AnyDef, QueryDef
from anabranch.plan.costs import Measured
from anabranch.plan.definitions import Definitions, tasks
from anabranch.plan.service_levels import Urgency
from anabranch.plan.tasks import TaskSpec
from anabranch.units import show_duration

LIMIT_S = 5.0
STRETCHES = 10
"""A best-effort deadline is doubled so often at most until all hold."""


@dataclass(frozen=True)
class Decision:
    """`urgencies` are by task; `promised` is by query, in seconds."""

    urgencies: Mapping[str, Urgency]
    promised: Mapping[str, float]


class Admission:
    """All queries in `known`, with their measurements; `slots` by site."""

    def __init__(
        self,
        known: Definitions,
        measured: Measured,
        slots: Mapping[str, int],
        latency: Latency | None = None,
    ) -> None:
        self._work = Workload(known, measured, slots, latency)
        self._queries = self._work.deadlines

    def decide(self, new: Sequence[str] = ()) -> Decision:
        """Decides. Raises AdmissionError if a deadline that is no best effort cannot hold; one of
        the `new` queries is to blame then.
        """
        if not self._queries:
            return Decision({}, {})
        problem = self._work.problem()
        plan = solve(problem, limit_s=LIMIT_S)
        if plan is None and any(one.best_effort for one in self._queries.values()):
            problem, plan = self._best_effort(problem)
        if plan is None:
            raise self._refusal(problem, [name for name in new if name in self._queries])
        return Decision(self._urgencies(problem, plan), plan.promised)

    def guessed(self) -> list[TaskSpec]:
        """Tasks on the way to a deadline whose cost nobody knows, though Spark could tell."""
        return self._work.guessed()

    def timely(self, query: str | None = None) -> set[str]:
        """Tasks on the way to a deadline: to any, or to that of `query`."""
        return set(self._work.waves(to=query))

    def sites(self, free: Free) -> dict[str, str]:
        """Sites of the `free` tasks with which all deadlines hold; empty if they hold nowhere."""
        plan = solve(self._work.problem(free), limit_s=LIMIT_S)
        return (
            {name: plan.placement[name] for name in free if name in plan.placement} if plan else {}
        )

    def nearest(self, free: Free) -> dict[str, str]:
        """The same; if they hold nowhere, the sites where deadlines must be put off least. Empty if
        sites could not even keep up with their input.
        """
        sites = self.sites(free)
        if sites or not free:
            return sites
        plan = solve(self._work.problem(free), relax=Relax.EACH, limit_s=LIMIT_S)
        return (
            {name: plan.placement[name] for name in free if name in plan.placement} if plan else {}
        )

    def _best_effort(self, problem: DeadlineProblem) -> tuple[DeadlineProblem, DeadlinePlan | None]:
        """The problem with the best-effort deadlines put off together until the others hold."""
        for power in range(1, STRETCHES + 1):
            outputs = tuple(
                replace(one, deadline=one.deadline * 2**power)
                if self._queries[one.name].best_effort
                else one
                for one in problem.outputs
            )
            looser = replace(problem, outputs=outputs)
            if plan := solve(looser, limit_s=LIMIT_S):
                return looser, plan
        return problem, None

    def _urgencies(self, problem: DeadlineProblem, plan: DeadlinePlan) -> dict[str, Urgency]:
        """The urgency of each task. A task of ours is part of a task of the plan, and is due when
        that is.
        """
        tasks = tasks_of(problem, plan)
        home = {name: one for one in tasks for name in one.operators}
        summed = ends(problem, tasks)
        concerned = {name for _, name in plan.deadlines}
        hard = self._work.waves(best_effort=False)
        return {
            name: Urgency(
                deadline_us=max(1, round(home[name].deadline * 1e6)),
                summed_us=max(1, round(summed[home[name].name] * 1e6)),
                best_effort=name not in hard,
            )
            for name in concerned
        }

    def _refusal(self, problem: DeadlineProblem, new: Sequence[str]) -> AdmissionError:
        who = new or list(self._queries)
        what = f"query {who[0]} cannot hold {self._queries[who[0]]}"
        relaxed = relaxation(problem, LIMIT_S)
        if relaxed is None:
            return self._overloaded(problem, what)
        ways = [
            f"DEADLINE {show_duration(_up(promised))} for {name}"
            for name, promised in relaxed.promised.items()
            if promised > self._queries[name].us / 1e6 * (1 + 1e-4)
        ]
        ways.append(f"all deadlines × {relaxed.stretch * 1.005:.2f}")
        ways.append(f"{1 / relaxed.stretch:.0%} of the input, or tasks that cost as much less")
        remedy = f"What would: {'; '.join(ways)}; or BEST EFFORT."
        return AdmissionError(f"{what} besides what runs already", remedy=remedy)

    def _overloaded(self, problem: DeadlineProblem, what: str) -> AdmissionError:
        """The error that a site cannot keep up, whatever the deadline. It tries whether one more
        slot would do.
        """
        load = dict.fromkeys(problem.sites, 0.0)
        for operator in problem.operators:
            load[operator.sites[0]] += operator.load
        site = max(load, key=lambda name: load[name] / problem.sites[name])
        slots = problem.sites[site] + 1
        more = replace(problem, sites={**problem.sites, site: slots})
        ways = [f"{problem.sites[site] / load[site]:.0%} of the input (SHED)"]
        if solve(more, limit_s=LIMIT_S):
            ways.insert(0, f"one more slot at {site} (slots = {slots})")
        return AdmissionError(
            f"{what}: site {site} (busy {load[site]:.0%}) cannot keep up with its input, whatever"
            " the deadline",
            remedy=f"What would: {'; '.join(ways)}; or run the query elsewhere.",
        )


def _up(seconds: float) -> float:
    """The number rounded up to three digits: the shown value must hold."""
    return seconds * 1e6 * 1.005


def urgent(definitions: Sequence[AnyDef], decision: Decision, known: Definitions) -> list[AnyDef]:
    """Those queries among `definitions` whose sub-deadlines differ from the decision, with the new
    ones.
    """
    changed: list[AnyDef] = []
    for definition in definitions:
        if not isinstance(definition, QueryDef):
            continue
        names = [task.name for task in tasks([definition], known)]
        now = {name: decision.urgencies[name] for name in names if name in decision.urgencies}
        if now != definition.urgencies:
            changed.append(definition.model_copy(update={"urgencies": now}))
    return changed
