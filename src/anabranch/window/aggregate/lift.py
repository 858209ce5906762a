"""Computes partial aggregates of tuples."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from anabranch.stream.batch import POSITION
from anabranch.window.aggregate.aggregate import Lifted
from anabranch.window.aggregate.calls import CallPlan
from anabranch.window.aggregate.cells import Argument, valid_of
from anabranch.window.aggregate.fold import Groups
from anabranch.window.aggregate.keys import rows_of
from anabranch.window.aggregate.pending import Ready
from anabranch.window.codes import codes_of, first_of_each
from anabranch.window.panes import Ints

Evaluate = Callable[[pa.Table], Mapping[Argument, pa.ChunkedArray]]
"""The values of keys and arguments, a row per tuple, in order."""


def arguments(keys: Sequence[Argument], plan: CallPlan) -> list[Argument]:
    """All arguments that are evaluated for each tuple, each once."""
    cells = [argument for cell in plan.layout.cells for argument in cell.arguments]
    distinct = [argument for one in plan.distinct for argument in one]
    return list(dict.fromkeys([*keys, *cells, *distinct]))


class Lift:
    def __init__(self, keys: Sequence[Argument], plan: CallPlan, evaluate: Evaluate) -> None:
        self._keys = keys
        self._plan = plan
        self._evaluate = evaluate

    def __call__(self, ready: Ready) -> Lifted:
        given = self._evaluate(ready.table.append_column(POSITION, pa.array(ready.positions)))
        keys = [given[key] for key in self._keys]
        rows = len(ready.groups)
        where = pa.chunked_array([pa.array(ready.groups)])
        numbers, first = first_of_each(codes_of([where, *keys], rows))
        groups = Groups(numbers, len(first))
        columns = [
            column
            for cell in self._plan.layout.cells
            for column in cell.fold(groups, [given[argument] for argument in cell.arguments])
        ]
        own = [key.take(pa.array(first)) for key in keys]
        distinct = [
            _distinct(ready.groups, keys, [given[argument] for argument in one])
            for one in self._plan.distinct
        ]
        return Lifted(ready.groups[first], own, columns, distinct)


def _distinct(
    groups: Ints, keys: Sequence[pa.ChunkedArray], values: Sequence[pa.ChunkedArray]
) -> tuple[Ints, list[pa.ChunkedArray], list[Hashable]]:
    """The groups, keys and values that occur together, each once, without those that have a NULL
    among the values.
    """
    valid = np.logical_and.reduce([valid_of(value) for value in values])
    where = pa.chunked_array([pa.array(groups)])
    columns = [column.filter(pa.array(valid)) for column in (where, *keys, *values)]
    _, first = first_of_each(codes_of(columns, int(valid.sum())))
    where, *rest = (column.take(pa.array(first)) for column in columns)
    return where.to_numpy(), rest[: len(keys)], rows_of(rest[len(keys) :])
