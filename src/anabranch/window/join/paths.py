"""The order in which the inputs of a join are brought together, and when each condition is
evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from anabranch.plan.expressions import Use
from anabranch.plan.operators import Condition


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
    there, reaches = [start], list[Reach]()
    while len(there) < len(aliases):
        missing = [i for i in range(len(aliases)) if i not in there]
        found = [_reach(to, there, edges) for to in missing]
        reach = next((reach for reach in found if reach.columns), found[0])
        if not reach.columns and reaches:
            reaches[-1] = _asking(reaches[-1], there, aliases, conditions)
        there.append(reach.to)
        reaches.append(reach)
    return Path(start, tuple(reaches))


def _reach(to: int, there: Sequence[int], edges: Sequence[Edge]) -> Reach:
    pairs = dict.fromkeys(
        (mine[1], other)
        for edge in edges
        for mine, other in (edge, edge[::-1])
        if mine[0] == to and other[0] in there
    )
    return Reach(to, tuple(mine for mine, _ in pairs), tuple(other for _, other in pairs))


def _asking(
    reach: Reach, there: Sequence[int], aliases: Sequence[str], conditions: Sequence[Condition]
) -> Reach:
    """The reach with those conditions on several inputs that can be evaluated now, and could not
    before it.
    """
    names = {aliases[i] for i in there}
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
