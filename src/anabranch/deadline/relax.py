"""Finds deadlines that can be promised when those that were asked for cannot hold."""

from __future__ import annotations

from dataclasses import dataclass, replace

from anabranch.deadline.problem import Problem
from anabranch.deadline.solve import solve
from anabranch.deadline.subdeadlines import Relax

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
    def with_deadlines(problem: Problem, deadlines: dict[str, float], factor: float) -> Problem:
        """`problem` with other deadlines, all times `factor`."""
        outputs = tuple(
            replace(one, deadline=deadlines[one.name] * factor) for one in problem.outputs
        )
        return replace(problem, outputs=outputs)


def relaxation(problem: Problem, limit_s: float = 10.0) -> Relaxation | None:
    """The relaxed deadlines; None if no deadline helps because the sites cannot keep up with the
    input.
    """
    common = solve(problem, relax=Relax.COMMON, limit_s=limit_s / 2)
    if common is None:
        return None
    stretch = max(common.promised[one.name] / one.deadline for one in problem.outputs)
    return Relaxation(_each(problem, limit_s / 2) or common.promised, stretch)


def _each(problem: Problem, limit_s: float) -> dict[str, float] | None:
    """Each output's own relaxed deadline. (6) follows the order of the ideal sub-deadlines, which
    other deadlines change: so the result is tried, and put off again if it does not hold.
    """
    asked = problem
    for _ in range(TRIES):
        plan = solve(asked, relax=Relax.EACH, limit_s=limit_s / TRIES)
        if plan is None:
            return None
        asked = Relaxation.with_deadlines(problem, plan.promised, 1 + ROUNDING)
        if solve(asked, limit_s=limit_s / TRIES):
            return {one.name: one.deadline for one in asked.outputs}
    return None
