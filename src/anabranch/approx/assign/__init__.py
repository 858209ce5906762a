"""Which worker computes which keys: all methods have one signature."""

from collections.abc import Callable

from anabranch.approx.assign.baselines import greedy, h_best, h_worst
from anabranch.approx.assign.problem import AssignmentProblem, Workers
from anabranch.approx.assign.swaps import swaps

Method = Callable[[AssignmentProblem], Workers]

METHODS: dict[str, Method] = {
    "greedy": greedy,
    "h-best": h_best,
    "h-worst": h_worst,
    "swaps": swaps,
}
"""`greedy` is the approx paper's figure 9, `h-best` and `h-worst` its baselines, `swaps` ours."""
