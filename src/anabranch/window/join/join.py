"""The MASTER query's evaluation.

A tuple takes part at the instants t with ts ≤ t < end, so a combination of tuples takes part from
the first instant that is not before any of them up to their first end, without a gap. So it is a
result once: at that first instant, if that is before the end.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from anabranch.plan.expressions import Use
from anabranch.plan.operators import Condition, Join
from anabranch.plan.windows import Window
from anabranch.snapshot.state import KeptPieces, Piece, State
from anabranch.stream.batch import BORN, END_WATERMARK, EVENT_TIME, START_WATERMARK
from anabranch.window.arrays import I64, hashable
from anabranch.window.join.buffer import (
    Arrival,
    Buffer,
    Closed,
    Instants,
    Outcome,
    at_start,
    instants,
)
from anabranch.window.join.combine import (
    Combinations,
    Path,
    WorkCounter,
    WorkLimits,
    combinations,
    paths,
)
from anabranch.window.join.members import OWN, Members, closed_of, closed_piece
from anabranch.window.join.results import Evaluator, JoinResults, RowSource

DEFAULT_LIMITS = WorkLimits()
_BLOCK_BYTES = 32_000_000
_MOST_FRESH = 65_536


class JoinState:
    """The state of a join between steps. `inputs` holds the alias and own columns of each; `uses`
    are the columns that operators after the join need.
    """

    def __init__(
        self,
        join: Join,
        inputs: Sequence[tuple[str, pa.Schema]],
        uses: Iterable[Use],
        evaluator: Evaluator,
        limits: WorkLimits = DEFAULT_LIMITS,
        check: Callable[[], None] = lambda: None,
        computed: Collection[Use] = (),
    ) -> None:
        """`check` is called after every block of combinations; it may raise. `computed` are columns
        that arrivals may come to lack: then call `try_all`.
        """
        self._join = join
        self._evaluator = evaluator
        self._limits = limits
        self._check = check
        held = inputs[: len(join.windows)]
        self._aliases = [alias for alias, _ in held]
        schemas = dict(held)
        uses_ = [use for c in join.conditions for use in c.expr.uses]
        self._uses = list(dict.fromkeys([*uses_, *uses]))

        def indexed(use: Use) -> bool:
            return use.column in _TIMES or hashable(schemas[use.input].field(use.column).type)

        self._paths = paths(self._aliases, join.conditions, indexed)
        self._paths_without = paths(
            self._aliases, join.conditions, lambda use: use not in computed and indexed(use)
        )
        self.tries_all = not computed
        """Nothing is looked up by what is computed."""
        self._members = [
            self._new_members(i, window, schema)
            for i, (window, (_, schema)) in enumerate(zip(join.windows, held, strict=True))
        ]
        for path in (*self._paths, *self._paths_without):
            for reach in path.reaches:
                if reach.columns:
                    self._members[reach.to].index(reach.columns)
        self._source = RowSource(self._aliases, self._members)
        self._go_along(self._paths)
        self._buffers = [Buffer() for _ in inputs]
        self._watermarks = [START_WATERMARK] * len(inputs)
        self._instant = START_WATERMARK
        self._closed_to = START_WATERMARK
        self._waiting: list[Closed | None] = []
        """Per input, the tuples that closed with the instants that are being evaluated."""
        self._results: JoinResults | None = None
        self._evaluation: Iterator[bool] | None = None
        self._standing: Outcome | None = None
        self._work = WorkCounter()

    def _go_along(self, ways: list[Path]) -> None:
        self._paths = ways
        self._in_products = frozenset[int]().union(*(path.in_products for path in ways))
        self._screens = self._conditions_to_screen()

    def try_all(self) -> None:
        """Does without computed columns from now on, because those of some tuples are not known.
        The same comes out, at the price of looking at more combinations.
        """
        self.tries_all = True
        self._go_along(self._paths_without)

    def _new_members(self, number: int, window: Window, schema: pa.Schema) -> Members:
        alias = self._aliases[number]
        uses = [*self._uses, *self._join.order]
        columns = {use.column for use in uses if use.input == alias}
        ways = (*self._paths, *self._paths_without)
        reaches = [reach for path in ways for reach in path.reaches]
        probed = {column for r in reaches for i, column in r.probes if i == number}
        needed = {column for r in reaches if r.to == number for column in r.columns}
        return Members(window, schema, sorted(columns - _TIMES), probed | needed)

    def _conditions_to_screen(self) -> dict[int, list[Condition]]:
        """For each input that takes part in a product, the conditions on it alone."""
        own = {
            i: [c for c in self._join.conditions if c.safe and c.expr.inputs == {self._aliases[i]}]
            for i in sorted(self._in_products)
        }
        return {i: conditions for i, conditions in own.items() if conditions}

    def open(self, instant: int) -> None:
        """Begins after a restart: results up to `instant` have been given, so tuples up to then
        only rebuild the state.
        """
        self._instant = instant

    @property
    def nbytes(self) -> int:
        """About what it takes in memory."""
        waiting = sum(buffer.nbytes for buffer in self._buffers)
        return waiting + sum(members.nbytes for members in self._members)

    def snapshot(self) -> State:
        """Between steps, of which the last was whole: the rows of all windows, and the tuples that
        wait for a watermark."""
        assert self._evaluation is None
        pieces: list[Piece] = []
        members: list[int] = []
        for input_ in self._members:
            own = input_.snapshot()
            members.append(len(own))
            pieces += own
        waiting = [buffer.waiting() for buffer in self._buffers]
        pieces += [closed_piece(tuples) for chunks in waiting for tuples, _ in chunks]
        notes = {
            "watermarks": list(self._watermarks),
            "closed_to": self._closed_to,
            "needless": self._standing.needless if self._standing else None,
            "tries_all": self.tries_all,
            "members": members,
            "gone": [[gone for _, gone in chunks] for chunks in waiting],
        }
        return State(notes, pieces)

    def restore(self, kept: KeptPieces) -> None:
        """Restores a state. Call it after `open`, and before the first step."""
        notes, pieces = kept.notes, iter(kept.pieces)
        if notes["tries_all"] and not self.tries_all:
            self.try_all()
        self._watermarks, self._closed_to = list(notes["watermarks"]), notes["closed_to"]
        for members, count in zip(self._members, notes["members"], strict=True):
            members.restore([next(pieces) for _ in range(count)])
        for buffer, chunks in zip(self._buffers, notes["gone"], strict=True):
            for gone in chunks:
                tuples = closed_of(next(pieces))
                left = tuples.slice(gone, len(tuples))
                buffer.add(left.pos, left.ts, left.born, left.columns)
        if notes["needless"] is not None:  # a first step that is cut stands where the last did
            standing = tuple(notes["needless"])
            self._standing = Outcome(None, START_WATERMARK, standing, self._instant)

    @property
    def held(self) -> tuple[int, ...]:
        """How many rows each window holds."""
        return tuple(map(len, self._members))

    def step(self, arrivals: Sequence[Arrival]) -> Outcome:
        """Evaluates all instants that the watermarks allow. If that means to look at many
        combinations, it evaluates some of them, and the next step goes on. The results of all steps
        together are the same however they are cut.
        """
        standing = self._standing or at_start(arrivals, self._instant)
        for number, arrival in enumerate(arrivals):
            self._take(number, arrival)
        if self._evaluation is None:
            self._close_up()
        table = None
        if self._go_on():
            table = self._results.table(self._join.partial) if self._results else None
            self._results = None
            standing = self._stand(arrivals)
        self._standing = standing
        return replace(standing, table=table, more=self._evaluation is not None)

    def _stand(self, arrivals: Sequence[Arrival]) -> Outcome:
        """The outcome once everything up to the last instant has been given."""
        if self._evaluation is None:
            self._waiting = []
            for members in self._members:
                members.sweep(self._closed_to)
        needless = tuple(self._needless(i, arrival.last) for i, arrival in enumerate(arrivals))
        reached = self._closed_to if self._evaluation is None else self._instant + 1
        watermark = END_WATERMARK if self._over() else reached
        return Outcome(None, watermark, needless, self._instant)

    def _close_up(self) -> None:
        """Takes in the tuples below the watermark, and begins with the instants among them."""
        self._closed_to = min(self._watermarks)
        self._waiting = [buffer.close(self._closed_to) for buffer in self._buffers]
        for members, tuples in zip(self._members, self._waiting, strict=False):
            if tuples is not None:
                members.append(tuples)
        self._replay_old()
        new = instants([self._waiting[i] for i in self._join.masters], after=self._instant)
        if len(new):
            self._evaluation = self._evaluate(new)

    def _go_on(self) -> bool:
        """Evaluates until this turn is over; True if what was begun is whole. Instants that are cut
        in two give nothing before the rest of them has been looked at.
        """
        first = self._work.looked
        for whole in self._evaluation or ():
            self._check()
            if self._work.looked - first >= self._limits.turn:
                return whole
        self._evaluation = None
        return True

    def _over(self) -> bool:
        """Whether there will be no more instants, whatever the other inputs still bring."""
        return self._evaluation is None and all(
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
        """Replays old tuples: those evaluated before a restart have no results among themselves."""
        for members in self._members:
            members.begin(self._instant, np.array([self._instant]))
            if members.old < members.fresh:
                members.enter(members.alive())
                members.settle(self._instant + 1)

    def _evaluate(self, new: Instants) -> Iterator[bool]:
        """Evaluates in parts with about as many fresh rows as there are old ones: then few rows are
        compared that never meet, however many come at once. Yields after every block of
        combinations, with whether a part is whole.
        """
        limits = self._limits_now()
        for _ in self._screen(int(new.times[-1]), limits):
            yield False
        for upto in self._parts(new.times):
            if self._results is None:
                self._results = self._new_results(new, limits)
            for part in self._advance(upto, new.times, limits):
                if len(part):
                    self._results.add(part)
                yield False
            self._results.gather()
            for members in self._members:
                members.settle(upto + 1)
                members.sweep(upto + 1)
            self._instant = upto
            yield True

    def _new_results(self, new: Instants, limits: WorkLimits) -> JoinResults:
        return JoinResults(
            self._source, self._uses, self._join.order, new, self._evaluator, limits.block
        )

    def _parts(self, times: I64) -> Iterator[int]:
        def brought(number: int) -> int:
            rows = (np.searchsorted(m.ts, times[number], side="right") for m in self._members)
            return int(sum(rows)) - sum(m.old for m in self._members)

        done = 0
        while done < len(times):
            old = sum(m.old for m in self._members)
            most = min(max(old, self._limits.fresh), _MOST_FRESH, self._within_a_turn())
            fit = bisect_right(range(len(times)), most, lo=done, key=brought)
            done = max(done + 1, fit)
            yield int(times[done - 1])

    def _within_a_turn(self) -> int:
        """How many rows can be brought in for one turn's work, where they multiply with others."""
        sizes = sorted(max(1, self._members[i].old) for i in self._in_products)
        return max(1, self._limits.turn // math.prod(sizes[1:]))

    def _advance(self, upto: int, times: I64, limits: WorkLimits) -> Iterator[Combinations]:
        for members in self._members:
            members.begin(upto, times)
        fresh = [members.alive() for members in self._members]
        for members, rows in zip(self._members, fresh, strict=True):
            members.enter(rows)
        for path in self._paths:
            if len(fresh[path.start]) and self._can_meet(path):
                yield from combinations(
                    self._members, path, fresh[path.start], self._ask, limits, self._work
                )

    def _can_meet(self, path: Path) -> bool:
        return all(
            self._members[r.to].fresh if r.to > path.start else self._members[r.to].old
            for r in path.reaches
        )

    def _screen(self, upto: int, limits: WorkLimits) -> Iterator[None]:
        """Evaluates conditions on one input before its rows multiply with others, block by block.
        It skips this for few rows, because a call costs more than comparing them.
        """
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
                candidates = Combinations({number: rows}, members.ts[rows], members.end[rows])
                members.ok[rows[self._ask(candidates, conditions)]] = True
                self._work.looked += len(rows)
                yield

    def _ask(self, combinations: Combinations, conditions: Sequence[Condition]) -> I64:
        if not len(combinations):
            return np.empty(0, np.int64)
        uses = list(dict.fromkeys(use for c in conditions for use in c.expr.uses))
        return np.sort(self._evaluator.keep(self._source.table(combinations, uses), conditions))

    def _limits_now(self) -> WorkLimits:
        """The limits, with smaller blocks if rows are large."""
        row_bytes = sum(members.row_bytes for members in self._members)
        most = max(1, int(_BLOCK_BYTES / max(1.0, row_bytes)))
        return replace(self._limits, block=min(self._limits.block, most))

    def _needless(self, number: int, last: int) -> int:
        lowest = [self._buffers[number].lowest]
        if number < len(self._members):
            lowest.append(self._members[number].lowest)
        lowest.append(self._lowest_waiting(number))
        needed = [position for position in lowest if position is not None]
        return min(needed) - 1 if needed else last

    def _lowest_waiting(self, number: int) -> int | None:
        """The lowest position of the tuples whose instants are still to be evaluated."""
        closed = self._waiting[number] if self._waiting else None
        if closed is None or number not in self._join.masters:
            return None
        behind = closed.pos[np.searchsorted(closed.ts, self._instant, side="right") :]
        return int(behind.min()) if len(behind) else None


_TIMES = set(OWN)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


__all__ = ["Arrival", "Evaluator", "JoinState", "Outcome"]
