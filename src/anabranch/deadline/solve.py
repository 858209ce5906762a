"""Placement and sub-deadlines together: the paper's program, behind one interface."""

from __future__ import annotations

from dataclasses import replace

from anabranch.deadline.anneal import anneal
from anabranch.deadline.chains import merge
from anabranch.deadline.forms import FORMS, Where, chosen, columns, edf_rows, way
from anabranch.deadline.linear import Linear
from anabranch.deadline.plan import TRAFFIC_WEIGHT, Plan, overloaded, traffic_share
from anabranch.deadline.problem import Problem
from anabranch.deadline.subdeadlines import Assigned, Relax, SubDeadlines, assign

EXACT_UP_TO = 400
"""Columns z up to which ties in the objective are broken by the least traffic, proven; above, by
the least that was found."""


def solve(
    problem: Problem,
    *,
    form: str = "lean",
    relax: Relax = Relax.NONE,
    limit_s: float = 20.0,
) -> Plan | None:
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


def _solve(problem: Problem, form: str, relax: Relax, limit_s: float) -> Plan | None:
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
    found = _plan(problem, placement, assigned, solution.bound)
    better = first and first.objective < found.objective - 1e-9
    return replace(first, bound=solution.bound) if first and better else found


def _start(first: Plan | None, z: Where, part: SubDeadlines) -> dict[int, float] | None:
    if first is None:
        return None
    start = {column: float(first.placement[name] == site) for (site, name), column in z.items()}
    return start | {column: first.deadlines[pair] for pair, column in part.columns.items()}


def _most(problem: Problem) -> float:
    """The number that lifts (6) from a pair that is not there: nothing is ever due later than all
    work.
    """
    return sum(one.cost for one in problem.operators)


def _heuristic(problem: Problem, relax: Relax) -> Plan | None:
    placement = anneal(problem)
    if overloaded(problem, placement):
        return None
    assigned = assign(problem, placement, relax)
    return _plan(problem, placement, assigned, 0.0) if assigned else None


def _plan(problem: Problem, placement: dict[str, str], assigned: Assigned, bound: float) -> Plan:
    objective = assigned.deviation + TRAFFIC_WEIGHT * traffic_share(problem, placement)
    return Plan(placement, assigned.deadlines, assigned.promised, objective, min(bound, objective))
