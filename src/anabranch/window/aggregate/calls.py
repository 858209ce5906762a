"""Turns a query's aggregate calls, a user's among them, into partial states, and these into
results.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.errors import ConfigError
from anabranch.plan.expressions import plain
from anabranch.plan.operators import AggregateCall
from anabranch.window.aggregate.cells import (
    Argument,
    Bound,
    Count,
    Extreme,
    Kind,
    Moments,
    Sum,
    kind_of,
    to_arrow,
)
from anabranch.window.aggregate.fold import Groups
from anabranch.window.aggregate.state import Cell, Columns, Layout, Values
from anabranch.window.panes import Ints
from anabranch.window.pieces import Pack, Unpack

_ATOMS = (int, float, str, bytes, bool, complex, type(None))


@dataclass(frozen=True)
class Custom:
    """`lift(*values)` makes a partial of one tuple, `merge(a, b)` one of two, `lower` a value.

    A partial may be part of several windows, so the user's code gets copies, which it may change.
    """

    name: str
    arguments: tuple[Argument, ...]
    lift: Callable[..., Any]
    combine: Callable[[Any, Any], Any]
    finish: Callable[[Any], Any]
    pack: Pack = pickle.dumps
    unpack: Unpack = pickle.loads
    """Partials as bytes, and back."""
    dtypes = ("O",)

    def fold(self, groups: Groups, columns: Sequence[pa.ChunkedArray]) -> Columns:
        given = [column.to_pylist() for column in columns]
        tuples = zip(*given, strict=True) if given else iter([()] * len(groups.numbers))
        partials: Values = np.empty(groups.count, object)
        known = [False] * groups.count
        for group, values in zip(groups.numbers.tolist(), tuples, strict=True):
            lifted = self.lift(*values)
            partials[group] = self.combine(partials[group], lifted) if known[group] else lifted
            known[group] = True
        return [partials]

    def merge(self, earlier: Columns, later: Columns) -> Columns:
        merged: Values = np.empty(len(earlier[0]), object)
        for row, (a, b) in enumerate(zip(earlier[0], later[0], strict=True)):
            merged[row] = self.combine(_own(a), _own(b))
        return [merged]

    def lower(self, columns: Columns) -> list[Any]:
        return [self.finish(_own(partial)) for partial in columns[0]]


def _own(partial: Any) -> Any:
    return partial if isinstance(partial, _ATOMS) else deepcopy(partial)


Lower = Callable[[Columns], pa.Array]


@dataclass(frozen=True)
class Lowered:
    """How a call's result is read from one cell, or with `distinct` from the count with that
    number.
    """

    name: str
    cell: Cell | None
    lower: Lower
    distinct: int | None = None


class CallPlan:
    """What is kept for `calls`: the cells of `layout`, and the arguments of `distinct` counts. The
    first position and the greatest `_born` are always kept; with `latest` also the greatest `_ts`.
    `custom` are the users' aggregates, by the names of their calls.
    """

    def __init__(
        self,
        calls: Sequence[AggregateCall],
        types: Sequence[pa.DataType],
        custom: Mapping[str, tuple[Cell, Lower]],
        latest: bool,
    ) -> None:
        self.first = Bound(Argument("`_pos`"), least=True)
        self.born = Bound(Argument("`_born`"), least=False)
        self.latest = Bound(Argument("`_ts`"), least=False) if latest else None
        self.distinct: list[tuple[Argument, ...]] = []
        self.calls: list[Lowered] = []
        for call, type in zip(calls, types, strict=True):
            if call.source:
                cell, lower = custom[call.name]
                self.calls.append(Lowered(call.name, cell, lower))
            else:
                self.calls.append(self._plan(call, type))
        cells = [self.first, self.born, self.latest, *(one.cell for one in self.calls)]
        self.layout = Layout(list(dict.fromkeys(cell for cell in cells if cell is not None)))

    def _plan(self, call: AggregateCall, type: pa.DataType) -> Lowered:
        function, arguments = (
            call.function.upper(),
            tuple(Argument(e.sql(plain)) for e in call.arguments),
        )
        if call.distinct and function not in ("MIN", "MAX"):
            if function != "COUNT":
                raise ConfigError(
                    f"{function}(DISTINCT …) is not supported in a window",
                    remedy="COUNT(DISTINCT …) is.",
                )
            self.distinct.append(arguments)
            return Lowered(call.name, None, _whole, distinct=len(self.distinct) - 1)
        if function == "COUNT":
            return Lowered(call.name, Count(arguments), _whole)
        if len(arguments) != 1:
            raise ConfigError(f"{function} takes one argument")
        cell, lower = _of_one(function, arguments[0], str(call.arguments[0]), type)
        return Lowered(call.name, cell, lower)

    def results(self, columns: Columns, counts: Sequence[Ints]) -> list[pa.Array]:
        """One array per call."""
        results = []
        for call in self.calls:
            if call.cell is not None:
                results.append(call.lower(self.layout.of(call.cell, columns)))
            else:
                assert call.distinct is not None
                results.append(call.lower([counts[call.distinct]]))
        return results


def _of_one(function: str, argument: Argument, shown: str, type: pa.DataType) -> tuple[Cell, Lower]:
    kind: Kind
    if function in ("MIN", "MAX"):
        kind = kind_of(type)
        return Extreme(argument, function == "MIN", kind), lambda c: to_arrow(
            c[0], c[1], kind, type
        )
    if function in ("SUM", "AVG"):
        kind = kind_of(type)
        if kind == "object" or (kind == "int" and function == "AVG"):
            raise ConfigError(f"{function} does not give a {type} in a window")
        if kind == "float":
            argument = Argument(argument.sql, double=True)
        cell = Sum(argument, kind, shown)
        if function == "SUM":
            return cell, lambda c: to_arrow(c[0], c[1] > 0, kind, type)
        return cell, lambda c: to_arrow(_mean(c, kind), c[1] > 0, kind, type)
    if function in _SPREADS:
        sample, root = _SPREADS[function]
        return Moments(Argument(argument.sql, double=True)), lambda c: _spread(c, sample, root)
    raise ConfigError(f"there is no aggregate function {function}")


_SPREADS = {
    "VAR_POP": (0, False),
    "VAR_SAMP": (1, False),
    "STDDEV_POP": (0, True),
    "STDDEV_SAMP": (1, True),
}
"""What is taken off the count, and whether to take the root."""


def _whole(columns: Columns) -> pa.Array:
    return pa.array(columns[0], pa.int64())


def _mean(columns: Columns, kind: Kind) -> Values:
    total, count = columns[0], np.maximum(columns[1], 1)
    if kind == "float":
        return np.asarray(total / count)
    whole: Values = np.empty(len(total), object)
    pairs = zip(total, count.tolist(), strict=True)
    whole[:] = [(2 * abs(t) + n) // (2 * n) * (1 if t >= 0 else -1) for t, n in pairs]
    return whole


def _spread(columns: Columns, sample: int, root: bool) -> pa.Array:
    count, _, squares = columns
    valid = count > sample
    spread = squares / np.maximum(count - sample, 1)
    with np.errstate(invalid="ignore"):
        return to_arrow(np.sqrt(spread) if root else spread, valid, "float", pa.float64())
