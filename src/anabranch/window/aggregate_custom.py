"""A user's aggregate function: partial states that are Python objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.window.aggregate_state import Columns, Values
from anabranch.window.panes import Ints

_ATOMS = (int, float, str, bytes, bool, complex, type(None))


@dataclass(frozen=True)
class Custom:
    """`lift(*values)` makes a partial of one tuple, `merge(a, b)` one of two, `lower` a value.

    A partial may be part of several windows, so the user's code gets copies, which it may change.
    """

    name: str
    arguments: tuple[str, ...]
    lift: Callable[..., Any]
    combine: Callable[[Any, Any], Any]
    finish: Callable[[Any], Any]
    ordered = False
    lifts = ()
    dtypes = ("O",)

    def load(self, lifted: Sequence[pa.ChunkedArray]) -> Columns:
        raise NotImplementedError("partials of a user's aggregate do not come from Spark")

    def fold(self, groups: Ints, count: int, tuples: Iterable[tuple[Any, ...]]) -> Values:
        """The partial of each of the groups 0…count - 1; `tuples` in order of their positions."""
        partials: Values = np.empty(count, object)
        known = [False] * count
        for group, values in zip(groups.tolist(), tuples, strict=True):
            lifted = self.lift(*values)
            partials[group] = self.combine(partials[group], lifted) if known[group] else lifted
            known[group] = True
        return partials

    def merge(self, earlier: Columns, later: Columns) -> Columns:
        merged: Values = np.empty(len(earlier[0]), object)
        for row, (a, b) in enumerate(zip(earlier[0], later[0], strict=True)):
            merged[row] = self.combine(_own(a), _own(b))
        return [merged]

    def lower(self, columns: Columns) -> list[Any]:
        return [self.finish(_own(partial)) for partial in columns[0]]


def _own(partial: Any) -> Any:
    return partial if isinstance(partial, _ATOMS) else deepcopy(partial)
