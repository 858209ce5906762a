"""Keeps the result of any query up to date that is a function of each key's rows by itself.

The inputs are kept by key. A batch of changes touches keys; the query is evaluated on the rows of
just these, as they were and as they are; what differs is the output. It is exact for whatever the
query is, as long as this gives the same for the same rows in the same order, and costs what the
rows of the touched keys cost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from anabranch.changes.change import (
    changes,
    deleted_of,
    difference,
    inserted_of,
    occurrence,
    same_rows,
)
from anabranch.changes.keyed import KeyedRows
from anabranch.errors import TaskError
from anabranch.window.arrays import I64, U64

Evaluate = Callable[[Mapping[str, pa.Table]], pa.Table]


@dataclass(frozen=True)
class KeyedInput:
    """`key`: the columns by which its rows belong to those of the other inputs, as many as these
    have and of the same types; without any all rows belong together. `whole`: each key needs all
    its rows."""

    schema: pa.Schema
    key: Sequence[str] = ()
    whole: bool = False


@dataclass(frozen=True)
class _Affected:
    """What a batch does to one input: rows of the touched keys, those that go, those that come."""

    rows: I64
    gone: I64
    before: pa.Table
    come: pa.Table

    @property
    def after(self) -> pa.Table:
        stay = ~np.isin(self.rows, self.gone)
        return pa.concat_tables([self.before.filter(pa.array(stay)), self.come])


class Universal:
    """Called by one thread at a time. If `step` raises, nothing has changed."""

    def __init__(self, inputs: Mapping[str, KeyedInput], evaluate: Evaluate) -> None:
        self._inputs = dict(inputs)
        self._evaluate = evaluate
        self._kept = {
            name: KeyedRows(one.schema, () if one.whole else one.key)
            for name, one in inputs.items()
        }
        keyed = [one for one in inputs.values() if not one.whole]
        if len({len(one.key) for one in keyed}) > 1:
            raise ValueError("inputs have different numbers of key columns")
        self._together = not any(one.key for one in keyed)
        self._of_nothing: pa.Table | None = None

    def __len__(self) -> int:
        """How many rows are kept."""
        return sum(map(len, self._kept.values()))

    def begin(self) -> pa.Table:
        """The changes that lead from nothing to the result of empty inputs. Called once, before the
        first step: such as `count(*)` gives a row of no rows at all."""
        nothing = {name: one.schema.empty_table() for name, one in self._inputs.items()}
        given = self._of_nothing = self._evaluate(nothing)
        if len(given) and not self._together:
            raise ValueError("a query that gives rows for no key cannot be evaluated by key")
        return changes(given.slice(0, 0), given)

    def step(self, batch: Mapping[str, pa.Table]) -> pa.Table:
        """The changes of the result that follow from those of inputs. In each table of the batch
        the order of insertions counts, and that of deletions does not; what is inserted and deleted
        in it need not have been there."""
        changed = {name: table for name, table in batch.items() if len(table)}
        touched = self._touched(changed)
        steps = {name: self._planned(name, changed.get(name), touched) for name in self._inputs}
        before = self._given({name: step.before for name, step in steps.items()})
        after = self._given({name: step.after for name, step in steps.items()})
        found = difference(before, after)
        for name, step in steps.items():
            self._kept[name].change(step.gone, step.come)
        return found

    def _touched(self, changed: Mapping[str, pa.Table]) -> U64 | None:
        """Hashes of keys, sorted; None if it is all of them."""
        if self._together or any(self._inputs[name].whole for name in changed):
            return None
        hashes = [self._kept[name].hashes(table) for name, table in changed.items()]
        return np.unique(np.concatenate(hashes)) if hashes else np.zeros(0, np.uint64)

    def _planned(self, name: str, changed: pa.Table | None, touched: U64 | None) -> _Affected:
        kept = self._kept[name]
        every = touched is None or self._inputs[name].whole
        rows = kept.all() if every or touched is None else kept.touched(touched)
        before = kept.take(rows)
        if changed is None:
            return _Affected(rows, rows[:0], before, before.slice(0, 0))
        come, go = inserted_of(changed), deleted_of(changed)
        if not len(go):
            return _Affected(rows, rows[:0], before, come)
        gone = _matching(name, [before, come], go)
        stay = ~np.isin(np.arange(len(come)), gone - len(before))
        return _Affected(rows, rows[gone[gone < len(before)]], before, come.filter(pa.array(stay)))

    def _given(self, tables: Mapping[str, pa.Table]) -> pa.Table:
        """What Spark computes from these rows; its result for no rows is kept."""
        if self._of_nothing is not None and not any(map(len, tables.values())):
            return self._of_nothing
        return self._evaluate(tables)


def _matching(name: str, there: list[pa.Table], gone: pa.Table) -> I64:
    """The places in the tables `there`, one after the other, of the rows that go: the first ones of
    those that are the same."""
    codes = same_rows([*there, gone])
    size = len(codes) - len(gone)
    wanted = np.bincount(codes[size:], minlength=int(codes.max(initial=-1)) + 1)
    found = np.flatnonzero(occurrence(codes[:size]) < wanted[codes[:size]])
    if len(found) < len(gone):
        raise TaskError(
            f"{len(gone) - len(found)} rows of {name} are to be deleted that are not there",
            remedy="Its source must give each row that it deletes as it was inserted.",
        )
    return found


class RowWise:
    """The same for a query that gives the results of each row by itself: nothing is kept."""

    def __init__(self, name: str, evaluate: Evaluate) -> None:
        self._name, self._evaluate = name, evaluate

    def step(self, batch: Mapping[str, pa.Table]) -> pa.Table:
        changed = batch[self._name]
        before, after = (
            self._evaluate({self._name: part})
            for part in (deleted_of(changed), inserted_of(changed))
        )
        return difference(before, after)
