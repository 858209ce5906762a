"""A user's aggregate function: partial states that are Python objects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.window.aggregate.cells import Argument
from anabranch.window.aggregate.fold import Groups
from anabranch.window.aggregate.state import Columns, Values

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
