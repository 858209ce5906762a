"""The sites that operators may take, in two forms of the program: full, as in the paper, and
lean.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from anabranch.deadline.linear import Linear, Solution
from anabranch.deadline.problem import DeadlineProblem, all_traffic
from anabranch.deadline.subdeadlines import Way

Where = dict[tuple[str, str], int]
"""(site, operator) → z, the binary column that says that it is there."""


def columns(program: Linear, problem: DeadlineProblem) -> Where:
    """z, with (10): each operator is at exactly one of its sites, and no site gets more work than
    its slots can keep up with, since input keeps coming.
    """
    z = {
        (site, operator.name): program.binary()
        for operator in problem.operators
        for site in operator.sites
    }
    for operator in problem.operators:
        program.row([(z[site, operator.name], 1) for site in operator.sites], 1, 1)
    for site, slots in problem.sites.items():
        terms = [
            (z[site, one.name], one.load) for one in problem.operators if (site, one.name) in z
        ]
        if any(load for _, load in terms):
            program.row(terms, upper=slots)
    return z


def chosen(z: Where, solution: Solution) -> dict[str, str]:
    return {
        operator: site for (site, operator), column in z.items() if solution.values[column] > 0.5
    }


def way(problem: DeadlineProblem, z: Where) -> Way:
    """The time that a link takes while it is not known where its ends are: a row for each site that
    the producer may be at, lifted if it is elsewhere.
    """

    def rows(producer: str, consumer: str) -> list[tuple[list[tuple[int, float]], float]]:
        fixed = problem.source_sites.get(producer)
        rows_ = []
        for site in (fixed,) if fixed else problem.by_name[producer].sites:
            elsewhere = [
                (z[other, consumer], problem.delay(site, other))
                for other in problem.by_name[consumer].sites
            ]
            most = max(delay for _, delay in elsewhere)
            terms = [(column, -delay) for column, delay in elsewhere if delay]
            if not most:
                continue
            if fixed:
                rows_.append((terms, 0.0))
            else:
                rows_.append(([*terms, (z[site, producer], -most)], -most))
        return rows_ or [([], 0.0)]

    return rows


def edf_rows(
    program: Linear,
    problem: DeadlineProblem,
    z: Where,
    deadlines: dict[tuple[str, str], int],
    most: float,
) -> None:
    """Adds (6) at every site, for the pairs that are there: `most` lifts it for the others. The
    sums are columns, each made of the one before, which keeps the rows short.
    """
    busy: dict[str, int] = {}
    seen: set[str] = set()
    for pair in problem.order:
        operator = problem.by_name[pair[1]]
        for site in operator.sites:
            column = z[site, operator.name]
            if operator.name not in seen:
                total = program.column()
                terms = [(total, 1.0), (column, -operator.cost)]
                terms += [(busy[site], -1.0)] if site in busy else []
                program.row(terms, 0, 0)
                busy[site] = total
            program.row([(busy[site], 1.0), (deadlines[pair], -1.0), (column, most)], upper=most)
        seen.add(operator.name)


def lean(program: Linear, problem: DeadlineProblem, z: Where, weight: float) -> None:
    """Adds the lean form. Every site reaches every other, so only the traffic's cost is left to
    add.
    """
    unit = weight / (all_traffic(problem) or 1.0)
    sinks = _sinks(problem)
    for source in problem.sources:
        _cross(program, problem, z, (source.name, source.traffic * unit), sinks, source.site)
    for operator in problem.operators:
        _cross(program, problem, z, (operator.name, operator.traffic * unit), sinks, None)


def _sinks(problem: DeadlineProblem) -> dict[str, set[str]]:
    sinks: dict[str, set[str]] = {}
    for output in problem.outputs:
        if output.site is not None:
            sinks.setdefault(output.operator, set()).add(output.site)
    return sinks


def _cross(
    program: Linear,
    problem: DeadlineProblem,
    z: Where,
    stream: tuple[str, float],
    sinks: dict[str, set[str]],
    fixed: str | None,
) -> None:
    name, cost = stream
    for site in problem.sites:
        column = z.get((site, name))
        if site == fixed:
            continue
        readers = [z[site, one] for one in problem.readers[name] if (site, one) in z]
        wanted = site in sinks.get(name, ())
        if not (readers or wanted):
            continue
        crossing = program.column(0, 1, cost)
        terms = [(column, 1.0)] if column is not None else []
        for reader in readers:
            program.row([(crossing, 1.0), (reader, -1.0), *terms], 0)
        if wanted:
            program.row([(crossing, 1.0), *terms], 1)


def full(program: Linear, problem: DeadlineProblem, z: Where, weight: float) -> None:
    """Adds (7) to (11): streams may be relayed by sites that do not use them, and not all pairs of
    sites need be linked.
    """
    unit = weight / (all_traffic(problem) or 1.0)
    sinks = _sinks(problem)
    streams: list[tuple[str, float, str | None]] = [
        (one.name, one.traffic * unit, one.site) for one in problem.sources
    ]
    streams += [(one.name, one.traffic * unit, None) for one in problem.operators]
    for name, cost, fixed in streams:
        _relayed(program, problem, z, (name, cost), fixed, sinks.get(name, set()))


def _relayed(
    program: Linear,
    problem: DeadlineProblem,
    z: Where,
    stream: tuple[str, float],
    fixed: str | None,
    sinks: set[str],
) -> None:
    name, cost = stream
    sites = list(problem.sites)
    most = len(sites)
    available = {site: program.binary() for site in sites}
    level = {site: program.column(0, most) for site in sites}
    flows = {
        (a, b): program.binary(cost)
        for a, b in product(sites, sites)
        if a != b and (a, b) not in problem.forbidden
    }
    for site in sites:
        coming = [(column, -1.0) for (_, there), column in flows.items() if there == site]
        terms = [(z[site, name], -1.0)] if (site, name) in z else []
        program.row([(available[site], 1.0), *coming, *terms], upper=float(site == fixed))  # (7)
        for reader in problem.readers[name]:
            if (site, reader) in z:
                program.row([(z[site, reader], 1.0), (available[site], -1.0)], upper=0)  # (8)
        if site in sinks:
            program.row([(available[site], 1.0)], 1)
    for (a, b), flow in flows.items():
        program.row([(flow, 1.0), (available[a], -1.0)], upper=0)  # (9)
        # (11): l_a ≥ l_b + 1 if the stream flows from a to b.
        program.row([(level[a], 1.0), (level[b], -1.0), (flow, -(most + 1.0))], -most)


Form = Callable[[Linear, DeadlineProblem, Where, float], None]
FORMS: dict[str, Form] = {"lean": lean, "full": full}
