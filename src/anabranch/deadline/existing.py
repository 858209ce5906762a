"""Placement without deadlines: little traffic, balanced load (as SQPR does)."""

from __future__ import annotations

from anabranch.deadline.forms import chosen, columns, lean
from anabranch.deadline.linear import Linear
from anabranch.deadline.problem import Problem


def existing_placement(problem: Problem, limit_s: float = 20.0) -> dict[str, str] | None:
    """Minimises the share of traffic that crosses sites plus the busiest site's share of all work;
    None if no placement keeps up with the load."""
    program = Linear()
    z = columns(program, problem)
    lean(program, problem, z, 1.0)
    busiest = program.column(cost=1.0)
    work = sum(one.cost for one in problem.operators)
    for site, slots in problem.sites.items():
        here = [
            (z[site, one.name], one.cost / work)
            for one in problem.operators
            if (site, one.name) in z
        ]
        program.row([(busiest, float(slots)), *((column, -part) for column, part in here)], 0)
    solution = program.solve(limit_s=limit_s)
    return chosen(z, solution) if solution else None
