"""Placement and sub-deadlines together: the paper's program behind one interface, and the deadlines
that could be promised instead if those asked for cannot hold.

(6) adds up the costs of all operators of a site that may be due earlier. The links of a chain can
only run one after another, so it would count the first ones several times. To the program they are
one operator.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from anabranch.deadline.anneal import anneal
from anabranch.deadline.forms import FORMS, Where, chosen, columns, edf_rows, way
from anabranch.deadline.linear import Linear
from anabranch.deadline.problem import (
    TRAFFIC_WEIGHT,
    DeadlinePlan,
    DeadlineProblem,
    Operator,
    Pair,
    overloaded,
    traffic_share,
)
from anabranch.deadline.subdeadlines import Assigned, Relax, SubDeadlines, assign


@dataclass(frozen=True)
class MergedChains:
    """`problem` with chains as single operators, named after their last link. `links` are the
    original operators of each, upstream first.
    """

    problem: DeadlineProblem
    links: dict[str, tuple[Operator, ...]]

    def sites(self, placement: dict[str, str]) -> dict[str, str]:
        """The site of every original operator."""
        return {one.name: placement[name] for name, links in self.links.items() for one in links}

    def split(self, deadlines: dict[Pair, float]) -> dict[Pair, float]:
        """The sub-deadline of every original operator: each link's share is its share of the cost,
        so all links of a chain keep the same laxity ratio.
        """
        shares: dict[Pair, float] = {}
        for (output, name), deadline in deadlines.items():
            whole = sum(one.cost for one in self.links[name])
            for link in self.links[name]:
                shares[output, link.name] = deadline * link.cost / whole
        return shares


def merge(problem: DeadlineProblem) -> MergedChains:
    """Merges an operator with its reader if nobody else reads it, and the reader reads nothing else
    and may run at the same sites. An output in the middle keeps a chain from being merged.
    """
    final = {one.operator for one in problem.outputs}
    chains: dict[str, list[Operator]] = {}
    for operator in problem.topological:
        chain = [operator]
        if len(operator.inputs) == 1 and operator.inputs[0] in chains:
            before = chains[operator.inputs[0]][-1]
            alone = problem.readers[before.name] == (operator.name,) and before.name not in final
            if alone and set(before.sites) == set(operator.sites):
                chain = [*chains.pop(before.name), operator]
        chains[operator.name] = chain
    operators = tuple(_one(chain) for chain in chains.values())
    merged = replace(problem, operators=operators)
    return MergedChains(merged, {name: tuple(chain) for name, chain in chains.items()})


def _one(chain: list[Operator]) -> Operator:
    first, last = chain[0], chain[-1]
    return replace(
        last,
        cost=sum(one.cost for one in chain),
        inputs=first.inputs,
        load=sum(one.load for one in chain),
        size=sum(one.size for one in chain),
    )


EXACT_UP_TO = 400
"""Columns z up to which ties in the objective are broken by the least traffic, proven; above, by
the least that was found."""


def solve(
    problem: DeadlineProblem,
    *,
    form: str = "lean",
    relax: Relax = Relax.NONE,
    limit_s: float = 20.0,
) -> DeadlinePlan | None:
    """The best plan found within about `limit_s`, with its gap; None if there is none (or none was
    found, which a tight limit may cause). Chains are merged first, and split again in the result.
    The same problem has the same plan as long as the limit does not end the search.
    """
    merged = merge(problem)
    plan = _solve(merged.problem, form, relax, limit_s)
    if plan is None:
        return None
    placement, deadlines = merged.sites(plan.placement), merged.split(plan.deadlines)
    return replace(plan, placement=placement, deadlines=deadlines)


def _solve(
    problem: DeadlineProblem, form: str, relax: Relax, limit_s: float
) -> DeadlinePlan | None:
    first = _heuristic(problem, relax) if not problem.forbidden else None
    exact = sum(len(one.sites) for one in problem.operators) <= EXACT_UP_TO
    if first and not exact and first.objective <= TRAFFIC_WEIGHT:
        return first
    program = Linear()
    z = columns(program, problem)
    part = SubDeadlines(program, problem, way(problem, z), relax)
    edf_rows(program, problem, z, part.columns, _most(problem))
    FORMS[form](program, problem, z, TRAFFIC_WEIGHT)
    solution = program.solve(
        limit_s=limit_s,
        abs_gap=1e-9 if exact else TRAFFIC_WEIGHT,
        start=_start(first, z, part),
    )
    if solution is None:
        return first
    placement = chosen(z, solution)
    assigned = assign(problem, placement, relax)
    if assigned is None:  # by rounding alone: what the solver has holds to its tolerance
        assigned = Assigned(part.values(solution), solution.objective, part.promised(solution))
    plan = _plan(problem, placement, assigned, solution.bound)
    better = first and first.objective < plan.objective - 1e-9
    return replace(first, bound=solution.bound) if first and better else plan


def _start(first: DeadlinePlan | None, z: Where, part: SubDeadlines) -> dict[int, float] | None:
    if first is None:
        return None
    start = {column: float(first.placement[name] == site) for (site, name), column in z.items()}
    return start | {column: first.deadlines[pair] for pair, column in part.columns.items()}


def _most(problem: DeadlineProblem) -> float:
    """The number that lifts (6) from a pair that is not there: nothing is ever due later than all
    work.
    """
    return sum(one.cost for one in problem.operators)


def _heuristic(problem: DeadlineProblem, relax: Relax) -> DeadlinePlan | None:
    placement = anneal(problem)
    if overloaded(problem, placement):
        return None
    assigned = assign(problem, placement, relax)
    return _plan(problem, placement, assigned, 0.0) if assigned else None


def _plan(
    problem: DeadlineProblem, placement: dict[str, str], assigned: Assigned, bound: float
) -> DeadlinePlan:
    objective = assigned.deviation + TRAFFIC_WEIGHT * traffic_share(problem, placement)
    return DeadlinePlan(
        placement, assigned.deadlines, assigned.promised, objective, min(bound, objective)
    )


TRIES = 4
ROUNDING = 1e-6


@dataclass(frozen=True)
class Relaxation:
    """`promised` are deadlines, each put off by as small a part as possible; `stretch` is the one
    factor by which all would have to be put off instead. If only costs change, input that takes 1 /
    `stretch` of the time fits.
    """

    promised: dict[str, float]
    stretch: float

    @staticmethod
    def with_deadlines(
        problem: DeadlineProblem, deadlines: dict[str, float], factor: float
    ) -> DeadlineProblem:
        """`problem` with other deadlines, all times `factor`."""
        outputs = tuple(
            replace(one, deadline=deadlines[one.name] * factor) for one in problem.outputs
        )
        return replace(problem, outputs=outputs)


def relaxation(problem: DeadlineProblem, limit_s: float = 10.0) -> Relaxation | None:
    """The relaxed deadlines; None if no deadline helps because the sites cannot keep up with the
    input.
    """
    common = solve(problem, relax=Relax.COMMON, limit_s=limit_s / 2)
    if common is None:
        return None
    stretch = max(common.promised[one.name] / one.deadline for one in problem.outputs)
    return Relaxation(_each(problem, limit_s / 2) or common.promised, stretch)


def _each(problem: DeadlineProblem, limit_s: float) -> dict[str, float] | None:
    """Each output's own relaxed deadline. (6) follows the order of the ideal sub-deadlines, which
    other deadlines change: so the result is tried, and put off again if it does not hold.
    """
    wanted = problem
    for _ in range(TRIES):
        plan = solve(wanted, relax=Relax.EACH, limit_s=limit_s / TRIES)
        if plan is None:
            return None
        wanted = Relaxation.with_deadlines(problem, plan.promised, 1 + ROUNDING)
        if solve(wanted, limit_s=limit_s / TRIES):
            return {one.name: one.deadline for one in wanted.outputs}
    return None
