"""The MASTER query's evaluation.

A tuple takes part at the instants t with ts ≤ t < end, so a combination of tuples does from the
first instant that is not before any of them up to their first end, without a gap. So it is a result
once: at that first instant, if that is before the end.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from anabranch.plan.expressions import Use
from anabranch.plan.operators import Condition, Join
from anabranch.plan.windows import Window
from anabranch.stream.batch import END_WATERMARK, START_WATERMARK
from anabranch.stream.names import BORN, EVENT_TIME
from anabranch.window.arrays import I64
from anabranch.window.buffer import Buffer
from anabranch.window.combine import Combinations, Limits, combinations
from anabranch.window.hashing import hashable
from anabranch.window.instants import Instants, instants
from anabranch.window.members import OWN, Members
from anabranch.window.paths import Path, paths
from anabranch.window.results import Evaluator, Results, Source

DEFAULT_LIMITS = Limits()
_BLOCK_BYTES = 32_000_000
_MOST_FRESH = 65_536


@dataclass(frozen=True)
class Arrival:
    """What one step takes from one input: tuples with their `_ts` and `_born`, their positions, the
    last position taken so far, and the watermark behind them."""

    table: pa.Table
    positions: I64
    last: int
    watermark: int


@dataclass(frozen=True)
class Outcome:
    """`table`: results in order, with `_ts`, `_born`, and what a partial join adds; None if there
    are none. The rest is as in a body's `Produced`."""

    table: pa.Table | None
    watermark: int
    needless: tuple[int, ...]
    instant: int


class JoinState:
    """What a join holds between steps. `inputs`: alias and own columns of each; `uses`: the columns
    that what comes behind the join needs."""

    def __init__(
        self,
        join: Join,
        inputs: Sequence[tuple[str, pa.Schema]],
        uses: Iterable[Use],
        evaluator: Evaluator,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self._join = join
        self._evaluator = evaluator
        self._limits = limits
        held = inputs[: len(join.windows)]
        self._aliases = [alias for alias, _ in held]
        schemas = dict(held)
        asked = [use for c in join.conditions for use in c.expr.uses]
        self._uses = list(dict.fromkeys([*asked, *uses]))
        self._paths = paths(
            self._aliases,
            join.conditions,
            lambda use: use.column in _TIMES or hashable(schemas[use.input].field(use.column).type),
        )
        self._members = [
            self._new_members(i, window, schema)
            for i, (window, (_, schema)) in enumerate(zip(join.windows, held, strict=True))
        ]
        for path in self._paths:
            for reach in path.reaches:
                if reach.columns:
                    self._members[reach.to].index(reach.columns)
        self._source = Source(self._aliases, self._members)
        self._screens = self._conditions_to_screen()
        self._buffers = [Buffer() for _ in inputs]
        self._watermarks = [START_WATERMARK] * len(inputs)
        self._instant = START_WATERMARK

    def _new_members(self, number: int, window: Window, schema: pa.Schema) -> Members:
        alias = self._aliases[number]
        uses = [*self._uses, *self._join.order]
        columns = {use.column for use in uses if use.input == alias}
        reaches = [reach for path in self._paths for reach in path.reaches]
        probed = {column for r in reaches for i, column in r.probes if i == number}
        found = {column for r in reaches if r.to == number for column in r.columns}
        return Members(window, schema, sorted(columns - _TIMES), probed | found)

    def _conditions_to_screen(self) -> dict[int, list[Condition]]:
        """Per input that takes part in a product, the conditions on it alone."""
        in_products = frozenset[int]().union(*(path.in_products for path in self._paths))
        own = {
            i: [c for c in self._join.conditions if c.safe and c.expr.inputs == {self._aliases[i]}]
            for i in sorted(in_products)
        }
        return {i: conditions for i, conditions in own.items() if conditions}

    def open(self, instant: int) -> None:
        """Results up to `instant` have been given: tuples up to then only rebuild the state."""
        self._instant = instant

    @property
    def held(self) -> tuple[int, ...]:
        """How many rows each window holds."""
        return tuple(map(len, self._members))

    def step(self, arrivals: Sequence[Arrival]) -> Outcome:
        for number, arrival in enumerate(arrivals):
            self._take(number, arrival)
        watermark = min(self._watermarks)
        closed = [buffer.close(watermark) for buffer in self._buffers]
        for members, tuples in zip(self._members, closed, strict=False):
            if tuples is not None:
                members.append(tuples)
        self._replay_old()
        new = instants([closed[i] for i in self._join.masters], after=self._instant)
        table = self._evaluate(new) if len(new) else None
        for members in self._members:
            members.sweep(watermark)
        needless = tuple(self._needless(i, arrival.last) for i, arrival in enumerate(arrivals))
        given = END_WATERMARK if self._over() else watermark
        return Outcome(table, given, needless, self._instant)

    def _over(self) -> bool:
        """There will be no more instants, whatever the other inputs still bring."""
        return all(
            self._watermarks[i] == END_WATERMARK and self._buffers[i].lowest is None
            for i in self._join.masters
        )

    def _take(self, number: int, arrival: Arrival) -> None:
        if len(arrival.table):
            ts = arrival.table.column(EVENT_TIME).to_numpy()
            if ts.min() < self._watermarks[number]:
                raise ValueError(
                    f"input {number} brought event time {ts.min()} behind its watermark"
                    f" {self._watermarks[number]}"
                )
            held = self._members[number].columns if number < len(self._members) else []
            columns = [_whole(arrival.table.column(name)) for name in held]
            born = arrival.table.column(BORN).to_numpy()
            self._buffers[number].add(arrival.positions, ts, born, columns)
        self._watermarks[number] = max(self._watermarks[number], arrival.watermark)

    def _replay_old(self) -> None:
        """What had been evaluated before a restart has no results among itself."""
        for members in self._members:
            members.begin(self._instant, np.array([self._instant]))
            if members.old < members.fresh:
                members.enter(members.alive())
                members.settle(self._instant + 1)

    def _evaluate(self, new: Instants) -> pa.Table | None:
        """In parts with about as many fresh rows as there are old ones: so few rows are compared
        that never meet, however much comes at once."""
        limits = self._limits_now()
        results = Results(
            self._source, self._uses, self._join.order, new, self._evaluator, limits.block
        )  # fmt: skip
        self._screen(int(new.times[-1]), limits)
        for upto in self._parts(new.times):
            for found in self._advance(upto, new.times, limits):
                results.add(found)
            results.gather()
            for members in self._members:
                members.settle(upto + 1)
                members.sweep(upto + 1)
            self._instant = upto
        return results.table(self._join.partial)

    def _parts(self, times: I64) -> Iterator[int]:
        def brought(number: int) -> int:
            rows = (np.searchsorted(m.ts, times[number], side="right") for m in self._members)
            return int(sum(rows)) - sum(m.old for m in self._members)

        done = 0
        while done < len(times):
            old = sum(m.old for m in self._members)
            most = min(max(old, self._limits.fresh), _MOST_FRESH)
            fit = bisect_right(range(len(times)), most, lo=done, key=brought)
            done = max(done + 1, fit)
            yield int(times[done - 1])

    def _advance(self, upto: int, times: I64, limits: Limits) -> Iterator[Combinations]:
        for members in self._members:
            members.begin(upto, times)
        fresh = [members.alive() for members in self._members]
        for members, rows in zip(self._members, fresh, strict=True):
            members.enter(rows)
        for path in self._paths:
            if len(fresh[path.start]) and self._can_meet(path):
                found = combinations(self._members, path, fresh[path.start], self._ask, limits)
                yield from found

    def _can_meet(self, path: Path) -> bool:
        return all(
            self._members[r.to].fresh if r.to > path.start else self._members[r.to].old
            for r in path.reaches
        )

    def _screen(self, upto: int, limits: Limits) -> None:
        """Ask conditions on one input before its rows multiply with others; not of few, because
        asking costs more than comparing them."""
        sizes = [int(np.searchsorted(m.ts, upto, side="right")) for m in self._members]
        for number, conditions in self._screens.items():
            members = self._members[number]
            new = np.arange(members.old, sizes[number])
            others = math.prod(max(1, size) for i, size in enumerate(sizes) if i != number)
            if len(new) * others < limits.asking:
                continue
            members.ok[new] = False
            for first in range(0, len(new), limits.block):
                rows = new[first : first + limits.block]
                found = Combinations({number: rows}, members.ts[rows], members.end[rows])
                members.ok[rows[self._ask(found, conditions)]] = True

    def _ask(self, found: Combinations, conditions: Sequence[Condition]) -> I64:
        if not len(found):
            return np.empty(0, np.int64)
        uses = list(dict.fromkeys(use for c in conditions for use in c.expr.uses))
        return np.sort(self._evaluator.keep(self._source.table(found, uses), conditions))

    def _limits_now(self) -> Limits:
        """Blocks are smaller if rows are large."""
        row_bytes = sum(members.row_bytes for members in self._members)
        most = max(1, int(_BLOCK_BYTES / max(1.0, row_bytes)))
        return replace(self._limits, block=min(self._limits.block, most))

    def _needless(self, number: int, last: int) -> int:
        lowest = [self._buffers[number].lowest]
        if number < len(self._members):
            lowest.append(self._members[number].lowest)
        needed = [position for position in lowest if position is not None]
        return min(needed) - 1 if needed else last


_TIMES = set(OWN)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


__all__ = ["Arrival", "Evaluator", "JoinState", "Outcome"]
