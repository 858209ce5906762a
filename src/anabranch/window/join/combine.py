"""Finds the combinations of rows that come into being at the present instants: in which order
inputs are brought together, and which condition is asked when.

Each combination has at least one fresh row. To find it once, it is found from its first input with
a fresh row: the inputs before that one give old rows only, those after it old and fresh ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from anabranch.plan.expressions import Use
from anabranch.plan.operators import Condition
from anabranch.window.arrays import I64, combined
from anabranch.window.join import lifetimes
from anabranch.window.join.members import Members


@dataclass(frozen=True)
class Reach:
    """Brings in the input `to`: rows whose `columns` equal what is at `probes` (an input that is in
    already, and its column); all rows if there are none.
    """

    to: int
    columns: tuple[str, ...] = ()
    probes: tuple[tuple[int, str], ...] = ()
    conditions: tuple[Condition, ...] = ()
    """On several inputs, to be asked before a product that comes next."""


@dataclass(frozen=True)
class Path:
    """How combinations with a fresh row of the input `start` are found."""

    start: int
    reaches: tuple[Reach, ...]

    @property
    def in_products(self) -> frozenset[int]:
        """The inputs whose number of rows multiplies the work."""
        products = [n for n, reach in enumerate(self.reaches) if not reach.columns]
        if not products:
            return frozenset()
        before = {self.start, *(reach.to for reach in self.reaches[: products[0]])}
        return frozenset({*before, *(self.reaches[n].to for n in products)})


def paths(
    aliases: Sequence[str], conditions: Sequence[Condition], indexed: Callable[[Use], bool]
) -> list[Path]:
    """A path from each input. It follows equalities as far as they go, then products, in FROM
    order. Conditions that may fail come last: they are not evaluated for a tuple that meets no
    partner.
    """
    number = {alias: i for i, alias in enumerate(aliases)}
    edges = [
        tuple((number[use.input], use.column) for use in c.equal)
        for c in conditions
        if c.equal and all(use.input in number and indexed(use) for use in c.equal)
    ]
    return [_path(start, aliases, conditions, edges) for start in range(len(aliases))]


Edge = tuple[tuple[int, str], ...]


def _path(
    start: int, aliases: Sequence[str], conditions: Sequence[Condition], edges: Sequence[Edge]
) -> Path:
    reached, reaches = [start], list[Reach]()
    while len(reached) < len(aliases):
        missing = [i for i in range(len(aliases)) if i not in reached]
        reaches_ = [_reach(to, reached, edges) for to in missing]
        reach = next((reach for reach in reaches_ if reach.columns), reaches_[0])
        if not reach.columns and reaches:
            reaches[-1] = _asking(reaches[-1], reached, aliases, conditions)
        reached.append(reach.to)
        reaches.append(reach)
    return Path(start, tuple(reaches))


def _reach(to: int, reached: Sequence[int], edges: Sequence[Edge]) -> Reach:
    pairs = dict.fromkeys(
        (mine[1], other)
        for edge in edges
        for mine, other in (edge, edge[::-1])
        if mine[0] == to and other[0] in reached
    )
    return Reach(to, tuple(mine for mine, _ in pairs), tuple(other for _, other in pairs))


def _asking(
    reach: Reach, reached: Sequence[int], aliases: Sequence[str], conditions: Sequence[Condition]
) -> Reach:
    """The reach with those conditions on several inputs that can be evaluated now, and could not
    before it.
    """
    names = {aliases[i] for i in reached}
    now = (
        c
        for c in conditions
        if c.safe
        and c.expr.inputs <= names
        and aliases[reach.to] in c.expr.inputs
        and len(c.expr.inputs) > 1
        and not (c.equal and reach.columns)
    )
    return Reach(reach.to, reach.columns, reach.probes, tuple(now))


@dataclass(frozen=True)
class Combinations:
    """Rows per input; the instants at which the combinations begin, and their ends."""

    rows: dict[int, I64]
    at: I64
    end: I64

    def __len__(self) -> int:
        return len(self.at)

    def take(self, which: I64) -> Combinations:
        rows = {i: rows[which] for i, rows in self.rows.items()}
        return Combinations(rows, self.at[which], self.end[which])


@dataclass(frozen=True)
class WorkLimits:
    """Sizes at which work is cut or done differently. They never change a result."""

    block: int = 200_000
    """So many combinations are looked at at once."""
    asking: int = 50_000
    """A product of so many is worth asking conditions beforehand: asking costs a Spark job."""
    fresh: int = 2048
    """At least so many rows are brought in at once, if there are."""
    turn: int = 400_000
    """So many combinations are looked at in one step at most, give or take a block: others wait
    for their turn meanwhile."""


class WorkCounter:
    """Counts how many combinations have been looked at."""

    looked = 0


Ask = Callable[[Combinations, Sequence[Condition]], I64]
"""Which combinations fulfil the conditions."""


def combinations(
    members: Sequence[Members],
    path: Path,
    fresh: I64,
    ask: Ask,
    limits: WorkLimits,
    work: WorkCounter,
) -> Iterator[Combinations]:
    """All combinations with a fresh row of `path.start`, given as `fresh`, in small portions. Some
    portions are empty, so that the caller may stop after any block that was looked at.
    """
    source = members[path.start]
    for first in range(0, len(fresh), limits.block):
        rows = fresh[first : first + limits.block]
        start = Combinations({path.start: rows}, source.at[rows], source.end[rows])
        yield from _follow(members, path, 0, start, ask, limits, work)


def _follow(
    members: Sequence[Members],
    path: Path,
    done: int,
    have: Combinations,
    ask: Ask,
    limits: WorkLimits,
    work: WorkCounter,
) -> Iterator[Combinations]:
    if done == len(path.reaches):
        yield have
        return
    reach = path.reaches[done]
    target, with_fresh = members[reach.to], reach.to > path.start
    if reach.columns:
        pairs = _equal(members, reach, have, with_fresh, limits.block)
    else:
        pairs = _product(target, have, with_fresh, limits.block)
    pruned = (_extended(have, reach.to, target, *pair, work) for pair in pairs)
    for combinations_ in _regrouped(pruned, limits.block, work):
        if reach.conditions and _next(members, path, done) * len(combinations_) >= limits.asking:
            combinations_ = combinations_.take(ask(combinations_, reach.conditions))
        if len(combinations_):
            yield from _follow(members, path, done + 1, combinations_, ask, limits, work)
        else:
            yield combinations_


def _next(members: Sequence[Members], path: Path, done: int) -> int:
    """The number of rows that the next reach multiplies by."""
    return members[path.reaches[done + 1].to].fresh


def _extended(
    have: Combinations, to: int, target: Members, which: I64, rows: I64, work: WorkCounter
) -> Combinations:
    """The combinations extended by the rows that exist at the same instants as all the others."""
    work.looked += len(which)
    at = np.maximum(have.at[which], target.at[rows])
    end = np.minimum(have.end[which], target.end[rows])
    together = np.flatnonzero(at < end)
    if len(together) < len(at):
        which, rows, at, end = which[together], rows[together], at[together], end[together]
    before = {i: rows_there[which] for i, rows_there in have.rows.items()}
    return Combinations({**before, to: rows}, at, end)


def _equal(
    members: Sequence[Members], reach: Reach, have: Combinations, with_fresh: bool, block: int
) -> Iterator[tuple[I64, I64]]:
    """Pairs of a combination and a row with an equal key hash."""
    parts = [members[i].key((column,), have.rows[i]) for i, column in reach.probes]
    hashes = combined([hashes for hashes, _ in parts])
    which = np.flatnonzero(np.logical_and.reduce([known for _, known in parts]))
    which = which[np.argsort(hashes[which])]  # ascending lookups find their memory in the cache
    sorted_hashes = hashes[which]
    for segment in members[reach.to].index(reach.columns).segments(with_fresh):
        hit, start, count = segment.find(sorted_hashes)
        for ranges, places in _spread(start, count, block):
            yield which[hit[ranges]], segment.rows[places]


def _product(
    target: Members, have: Combinations, with_fresh: bool, block: int
) -> Iterator[tuple[I64, I64]]:
    """Pairs of a combination and any existing row; only those that meet, if ends ascend."""
    limit = target.fresh if with_fresh else target.old
    at, end = target.at[:limit], target.end[:limit]
    rows = np.flatnonzero(target.ok[:limit] & (end > np.maximum(at, have.at.min())))
    start = np.zeros(len(have), np.int64)
    if lifetimes.ascending(target.window):
        start = np.searchsorted(end[rows], have.at, side="right")
    stop = np.searchsorted(at[rows], have.end)
    for which, places in _spread(start, np.maximum(stop - start, 0), block):
        yield which, rows[places]


def _spread(start: I64, count: I64, block: int) -> Iterator[tuple[I64, I64]]:
    """The ranges one after the other: the number of the range, and the place; at most `block` at
    once.
    """
    stops = np.cumsum(count)
    total = int(stops[-1]) if len(stops) else 0
    for low in range(0, total, block):
        high = min(low + block, total)
        first, last = np.searchsorted(stops, [low, high - 1], side="right")
        part = slice(first, last + 1)
        begins = stops[part] - count[part]
        counts = np.minimum(stops[part], high) - np.maximum(begins, low)
        which = np.repeat(np.arange(first, last + 1), counts)
        shift = np.repeat(start[part] - begins, counts)
        yield which, np.arange(low, high) + shift


def _regrouped(
    pieces: Iterable[Combinations], block: int, work: WorkCounter
) -> Iterator[Combinations]:
    """Fewer, larger pieces, because each piece costs a round of later calls. A piece is empty where
    much was looked at and nothing found.
    """
    waiting: list[Combinations] = []
    rows, looked = 0, work.looked
    for piece in pieces:
        if waiting and rows + len(piece) > block:
            yield joined(waiting)
            waiting, rows, looked = [], 0, work.looked
        if len(piece):
            waiting.append(piece)
            rows += len(piece)
        if not waiting and work.looked - looked >= block:
            yield piece
            looked = work.looked
    if waiting:
        yield joined(waiting)


def joined(pieces: Sequence[Combinations]) -> Combinations:
    if len(pieces) == 1:
        return pieces[0]
    return Combinations(
        {i: np.concatenate([piece.rows[i] for piece in pieces]) for i in pieces[0].rows},
        np.concatenate([piece.at for piece in pieces]),
        np.concatenate([piece.end for piece in pieces]),
    )
