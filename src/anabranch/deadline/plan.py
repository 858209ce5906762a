"""The decision: a site for every operator, sub-deadlines, and how good that is known to be."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.deadline.problem import Pair, Problem

TRAFFIC_WEIGHT = 1e-3
"""What all streams between sites together count for in the objective: they break ties."""


@dataclass(frozen=True)
class Plan:
    """`objective` is (3) plus the tie-break, `bound` is a lower bound of all plans. `promised` are
    the outputs' deadlines, longer than asked for if they had to be.
    """

    placement: dict[str, str]
    deadlines: dict[Pair, float]
    promised: dict[str, float]
    objective: float
    bound: float

    @property
    def gap(self) -> float:
        """How much better another plan might be, as a share of the objective. A difference in
        traffic alone, which only breaks ties, is no gap.
        """
        missing = self.objective - self.bound
        return missing / self.objective if missing > TRAFFIC_WEIGHT else 0.0

    def sub_deadline(self, operator: str) -> float:
        """The operator's sub-deadline; an operator that several outputs share takes the
        smallest.
        """
        return min(value for (_, name), value in self.deadlines.items() if name == operator)


def traffic_share(problem: Problem, placement: dict[str, str]) -> float:
    """The part of all possible traffic that crosses sites; a stream counts once a site."""
    crossing = sum(
        traffic * len(sites - {here}) for _, here, traffic, sites in _flows(problem, placement)
    )
    return crossing / (all_traffic(problem) or 1.0)


def all_traffic(problem: Problem) -> float:
    """The traffic if every reader and sink were elsewhere, each at a site of its own."""
    sinks: dict[str, int] = {}
    for output in problem.outputs:
        sinks[output.operator] = sinks.get(output.operator, 0) + (output.site is not None)
    return sum(
        one.traffic * (len(problem.readers[one.name]) + sinks.get(one.name, 0))
        for one in problem.streams
    )


def _flows(problem: Problem, placement: dict[str, str]) -> list[tuple[str, str, float, set[str]]]:
    """For each stream: its name, its site, its traffic, and the sites that need it."""
    needed = {
        name: {placement[reader] for reader in readers} for name, readers in problem.readers.items()
    }
    for output in problem.outputs:
        if output.site is not None:
            needed[output.operator].add(output.site)
    flows = [(one.name, one.site, one.traffic, needed[one.name]) for one in problem.sources]
    for operator in problem.operators:
        here = placement[operator.name]
        flows.append((operator.name, here, operator.traffic, needed[operator.name]))
    return flows


def overloaded(problem: Problem, placement: dict[str, str]) -> str | None:
    """A site that cannot keep up with its input in the long run, if there is one."""
    load = dict.fromkeys(problem.sites, 0.0)
    for operator in problem.operators:
        load[placement[operator.name]] += operator.load
    return next((site for site, slots in problem.sites.items() if load[site] > slots + 1e-9), None)
