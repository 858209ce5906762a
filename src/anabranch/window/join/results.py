"""Takes combinations, evaluates their conditions in blocks, and puts the rest in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from anabranch.plan.expressions import Use, flat_name
from anabranch.plan.operators import Condition
from anabranch.plan.windows import UNTIL
from anabranch.stream.batch import BORN, EVENT_TIME
from anabranch.window.arrays import I64
from anabranch.window.join.buffer import Instants
from anabranch.window.join.combine import Combinations, joined
from anabranch.window.join.members import Members

INDEX = "_index"
"""The column that numbers candidates, so that nobody need keep their order."""
ORDER = "_order.{}"


class Evaluator(Protocol):
    """Evaluates conditions and computes expressions. Candidates have columns called `input.column`,
    and INDEX.
    """

    def keep(self, candidates: pa.Table, conditions: Sequence[Condition]) -> I64:
        """The INDEX of those that fulfil all of `conditions`."""

    def results(self, candidates: pa.Table) -> pa.Table:
        """Output columns, and INDEX, of those that fulfil all conditions."""


class RowSource:
    """The rows of all inputs, by the names that expressions use."""

    def __init__(self, aliases: Sequence[str], members: Sequence[Members]) -> None:
        self._members = dict(zip(aliases, members, strict=True))
        self._number = {alias: i for i, alias in enumerate(aliases)}

    def table(self, combinations: Combinations, uses: Sequence[Use]) -> pa.Table:
        columns: dict[str, pa.Array] = {}
        for alias, members in self._members.items():
            names = [use.column for use in uses if use.input == alias]
            taken = members.take(names, combinations.rows[self._number[alias]]) if names else []
            columns |= {
                flat_name(Use(input=alias, column=name)): column
                for name, column in zip(names, taken, strict=True)
            }
        return pa.table({**columns, INDEX: pa.array(np.arange(len(combinations)))})

    def numbers(self, combinations: Combinations, use: Use) -> I64:
        rows = combinations.rows[self._number[use.input]]
        return self._members[use.input].numbers(use.column, rows)

    def born(self, combinations: Combinations) -> I64:
        """The time of the newest row in each combination."""
        members = zip(self._number.values(), self._members.values(), strict=True)
        born: I64 = np.maximum.reduce([m.numbers(BORN, combinations.rows[i]) for i, m in members])
        return born


class JoinResults:
    """The output of one step. Call `gather` before rows are renumbered."""

    def __init__(
        self,
        source: RowSource,
        uses: Sequence[Use],
        order: Sequence[Use],
        instants: Instants,
        evaluator: Evaluator,
        block: int,
    ) -> None:
        self._source = source
        self._uses = uses
        self._order = order
        self._instants = instants
        self._evaluator = evaluator
        self._block = block
        self._found: list[Combinations] = []
        self._waiting: list[tuple[pa.Table, I64]] = []
        self._waiting_rows = 0
        self._done: list[tuple[pa.Table, I64]] = []

    def add(self, combinations: Combinations) -> None:
        if sum(map(len, self._found)) + len(combinations) > self._block:
            self.gather()
        self._found.append(combinations)

    def gather(self) -> None:
        """Takes the columns of the combinations that were found."""
        if not self._found:
            return
        combinations, self._found = joined(self._found), []
        if self._waiting_rows + len(combinations) > self._block:
            self._evaluate()
        self._waiting.append(
            (self._source.table(combinations, self._uses), self._numbers(combinations))
        )
        self._waiting_rows += len(combinations)

    def _numbers(self, combinations: Combinations) -> I64:
        """The numbers of each combination: instant, then the order of its results; then when it was
        born, and its end.
        """
        trigger = self._instants.born[np.searchsorted(self._instants.times, combinations.at)]
        born = np.maximum(trigger, self._source.born(combinations))
        order = [self._source.numbers(combinations, use) for use in self._order]
        return np.stack([combinations.at, *order, born, combinations.end])

    def _evaluate(self) -> None:
        if not self._waiting:
            return
        tables, numbers = zip(*self._waiting, strict=True)
        self._waiting, self._waiting_rows = [], 0
        candidates = pa.concat_tables(tables)
        if len(tables) > 1:
            index = pa.array(np.arange(len(candidates)))
            at = candidates.schema.get_field_index(INDEX)
            candidates = candidates.set_column(at, INDEX, index)
        table = self._evaluator.results(candidates)
        if len(table):
            which = table.column(INDEX).to_numpy()
            self._done.append((table.drop_columns([INDEX]), np.hstack(numbers)[:, which]))

    def table(self, partial: bool) -> pa.Table | None:
        """All results in order; None if there are none."""
        self.gather()
        self._evaluate()
        if not self._done:
            return None
        tables, parts = zip(*self._done, strict=True)
        table, numbers = pa.concat_tables(tables), np.hstack(parts)
        at, *order, born, end = numbers
        rows = np.lexsort((*order[::-1], at))
        if not bool(np.all(rows[1:] > rows[:-1])):
            table = table.combine_chunks().take(pa.array(rows))
            at, *order, born, end = numbers[:, rows]
        if partial:
            table = table.append_column(UNTIL, pa.array(end))
            for i, numbers_of_one in enumerate(order):
                table = table.append_column(ORDER.format(i), pa.array(numbers_of_one))
        return table.append_column(EVENT_TIME, pa.array(at)).append_column(BORN, pa.array(born))
