"""Builds a linear or mixed integer program row by row; HiGHS solves it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import highspy
import numpy as np

INFINITY = highspy.kHighsInf


@dataclass(frozen=True)
class Solution:
    """`bound` is a lower bound of all solutions; equal to `objective` if this one is optimal."""

    values: np.ndarray
    objective: float
    bound: float


@dataclass
class Linear:
    """Minimises a cost over columns, under rows. Columns are known by their numbers."""

    _lower: list[float] = field(default_factory=list)
    _upper: list[float] = field(default_factory=list)
    _cost: list[float] = field(default_factory=list)
    _whole: list[bool] = field(default_factory=list)
    _rows: list[tuple[float, float]] = field(default_factory=list)
    _starts: list[int] = field(default_factory=lambda: [0])
    _index: list[int] = field(default_factory=list)
    _value: list[float] = field(default_factory=list)

    def column(
        self, lower: float = 0.0, upper: float = INFINITY, cost: float = 0.0, whole: bool = False
    ) -> int:
        self._lower.append(lower)
        self._upper.append(upper)
        self._cost.append(cost)
        self._whole.append(whole)
        return len(self._cost) - 1

    def binary(self, cost: float = 0.0) -> int:
        return self.column(0, 1, cost, whole=True)

    def row(
        self,
        terms: Iterable[tuple[int, float]],
        lower: float = -INFINITY,
        upper: float = INFINITY,
    ) -> None:
        for column, value in terms:
            self._index.append(column)
            self._value.append(value)
        self._starts.append(len(self._index))
        self._rows.append((lower, upper))

    def solve(
        self,
        limit_s: float = INFINITY,
        rel_gap: float = 0.0,
        abs_gap: float = 1e-9,
        start: dict[int, float] | None = None,
    ) -> Solution | None:
        """A solution; None if there is none, or none was found in time. `start` are values of some
        columns in a known solution.
        """
        solver = highspy.Highs()  # type: ignore[no-untyped-call]
        for option, value in {
            "output_flag": False,
            "threads": 1,
            "time_limit": limit_s,
            "mip_rel_gap": rel_gap,
            "mip_abs_gap": abs_gap,
            "mip_feasibility_tolerance": 1e-9,
            "primal_feasibility_tolerance": 1e-9,
        }.items():
            solver.setOptionValue(option, value)
        solver.passModel(self._program())
        if start:
            columns = np.fromiter(start.keys(), dtype=np.int32, count=len(start))
            values = np.fromiter(start.values(), dtype=np.float64, count=len(start))
            solver.setSolution(len(start), columns, values)
        solver.run()
        return self._found(solver)

    def _found(self, solver: highspy.Highs) -> Solution | None:
        info = solver.getInfo()
        if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
            return None
        values = np.array(solver.getSolution().col_value)
        objective = float(info.objective_function_value)
        bound = float(info.mip_dual_bound) if any(self._whole) else objective
        return Solution(values, objective, min(bound, objective))

    def _program(self) -> highspy.HighsLp:
        program = highspy.HighsLp()
        program.num_col_, program.num_row_ = len(self._cost), len(self._rows)
        program.col_cost_ = np.array(self._cost)
        program.col_lower_, program.col_upper_ = np.array(self._lower), np.array(self._upper)
        program.row_lower_ = np.array([lower for lower, _ in self._rows])
        program.row_upper_ = np.array([upper for _, upper in self._rows])
        program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        program.a_matrix_.start_ = np.array(self._starts)
        program.a_matrix_.index_ = np.array(self._index)
        program.a_matrix_.value_ = np.array(self._value)
        if any(self._whole):
            kinds = highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger
            program.integrality_ = [kinds[whole] for whole in self._whole]
        return program
