"""Sub-deadlines: the linear part of the program, (3) to (5), and (6) once a placement is known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from anabranch.deadline.linear import INFINITY, Linear, Solution
from anabranch.deadline.problem import DeadlineOutput, DeadlineProblem, Pair

RELAX_WEIGHT = 1e3
"""What it costs to put a deadline off by its own length, or all of them, against an operator that
gets no laxity at all where most is to be had: deadlines are put off only if they must."""


Way = Callable[[str, str], Iterable[tuple[list[tuple[int, float]], float]]]
"""Producer and consumer → the rows that their link makes: terms to be added, and a lower bound."""


class Relax(Enum):
    """Which deadlines may be put off: none, each by itself, or all by one factor."""

    NONE = 0
    EACH = 1
    COMMON = 2


class SubDeadlines:
    """The columns d_{s,o} and the rows that they must obey, wherever operators run. Only the time
    of tuples between sites depends on that: `where` says where operators run.

    The laxity ratios in (4) differ by (d'_{s,o} − d_{s,o}) / c_o; an operator that stands for
    several counts as many times. (5) is written with the latest end of each operator instead of one
    row a path: plans that branch and meet again have more paths than can be counted.
    """

    def __init__(
        self, program: Linear, problem: DeadlineProblem, where: Way, relax: Relax = Relax.NONE
    ) -> None:
        self.columns: dict[Pair, int] = {}
        self.late: dict[str, int] = {}
        """Output → the column of what its deadline is put off by, in parts of itself."""
        self._program = program
        self._problem = problem
        self._way = where
        self._relax = relax
        self._common = self._putting_off() if relax is Relax.COMMON else None
        for output in problem.outputs:
            self._add(output)

    def values(self, solution: Solution) -> dict[Pair, float]:
        return {pair: float(solution.values[column]) for pair, column in self.columns.items()}

    def promised(self, solution: Solution) -> dict[str, float]:
        """Output → the deadline that holds."""
        late = {name: float(solution.values[column]) for name, column in self.late.items()}
        return {
            one.name: one.deadline * (1 + late.get(one.name, 0.0)) for one in self._problem.outputs
        }

    def _putting_off(self) -> int:
        ratios = [
            ideal / self._problem.by_name[o].cost for (_, o), ideal in self._problem.ideal.items()
        ]
        return self._program.column(0, INFINITY, RELAX_WEIGHT * max(1.0, *ratios, 0.0))

    def _add(self, output: DeadlineOutput) -> None:
        program = self._program
        end: dict[str, int] = {}
        for operator in self._problem.upstream[output.name]:
            pair = output.name, operator.name
            deadline = program.column(operator.cost)
            over, under = (program.column(0, INFINITY, operator.size) for _ in range(2))
            ideal = self._problem.ideal[pair] / operator.cost
            terms = [(deadline, 1 / operator.cost), (over, 1.0), (under, -1.0)]
            program.row(terms, ideal, ideal)
            end[operator.name] = program.column()
            took = [(end[operator.name], 1.0), (deadline, -1.0)]
            for name in operator.inputs:
                since = [*took, (end[name], -1.0)] if name in end else took
                for terms, least in self._way(name, operator.name):
                    program.row([*since, *terms], least)
            self.columns[pair] = deadline
        self._limit(output, end[output.operator])

    def _limit(self, output: DeadlineOutput, end: int) -> None:
        terms = [(end, 1.0)]
        if self._relax is not Relax.NONE:
            late = self._putting_off() if self._common is None else self._common
            self.late[output.name] = late
            terms.append((late, -output.deadline))
        self._program.row(terms, upper=output.deadline)


def known_way(problem: DeadlineProblem, placement: Mapping[str, str]) -> Way:
    """The times between sites for a given placement."""
    at = problem.source_sites | dict(placement)
    return lambda producer, consumer: [([], problem.delay(at[producer], at[consumer]))]


@dataclass(frozen=True)
class Assigned:
    deadlines: dict[Pair, float]
    deviation: float
    promised: dict[str, float]


def demand(problem: DeadlineProblem, placement: dict[str, str]) -> dict[Pair, float]:
    """The left side of (6) for every pair: the work that its site may have to do before it. An
    operator that serves several outputs runs once, so it counts once.
    """
    busy = dict.fromkeys(problem.sites, 0.0)
    seen: set[str] = set()
    needed: dict[Pair, float] = {}
    for pair in problem.order:
        operator = problem.by_name[pair[1]]
        site = placement[operator.name]
        if operator.name not in seen:
            seen.add(operator.name)
            busy[site] += operator.cost
        needed[pair] = busy[site]
    return needed


def assign(
    problem: DeadlineProblem, placement: dict[str, str], relax: Relax = Relax.NONE
) -> Assigned | None:
    """The best sub-deadlines for a placement; None if it has none."""
    program = Linear()
    part = SubDeadlines(program, problem, known_way(problem, placement), relax)
    for pair, needed in demand(problem, placement).items():
        program.row([(part.columns[pair], 1.0)], needed)
    solution = program.solve()
    if solution is None:
        return None
    return Assigned(part.values(solution), solution.objective, part.promised(solution))
