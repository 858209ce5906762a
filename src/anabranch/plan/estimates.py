"""Guesses how much a stream carries where nothing was measured, from what is known of its
inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from anabranch.plan.graph import Node
from anabranch.plan.operators import Aggregate, Join, Selection
from anabranch.plan.spec import Column
from anabranch.plan.windows import Relation

UNKNOWN_RATE = 1.0
"""Tuples a second of a stream of which nothing is known: then all are alike."""
SELECTION, AGGREGATE = 0.5, 0.1
"""Tuples out per tuple in."""
_BYTES = {"boolean": 1, "tinyint": 1, "smallint": 2, "int": 4, "float": 4, "date": 4}
_WIDE, _USUAL, _OVERHEAD = 24, 8, 16


@dataclass(frozen=True)
class Rates:
    """`measured` are tuples a second by stream; `selectivities` tuples out per tuple in by node."""

    measured: Mapping[str, float] = field(default_factory=dict)
    selectivities: Mapping[str, float] = field(default_factory=dict)


def width(columns: Sequence[Column]) -> int:
    """The estimated bytes of a tuple on its way, its times included."""
    return _OVERHEAD + sum(_bytes(column.type.lower()) for column in columns)


def _bytes(type_: str) -> int:
    if type_ in ("string", "binary") or type_.startswith(("array", "map", "struct", "varchar")):
        return _WIDE
    return _BYTES.get(type_, _USUAL)


def rates_of(
    nodes: Sequence[Node], rates: Rates, name: Callable[[str], str] = lambda node: node
) -> dict[str, float]:
    """Tuples a second of each node's stream; nodes come after those they read. `name` gives the
    name under which a node was measured.
    """
    found: dict[str, float] = {}
    for node in nodes:
        inputs = [
            found.get(port.stream, rates.measured.get(port.stream, UNKNOWN_RATE))
            for port in node.inputs
        ]
        called = name(node.name)
        share = rates.selectivities.get(called, selectivity(node))
        found[node.name] = rates.measured.get(called, share * _driving(node, inputs))
    return found


def _driving(node: Node, inputs: Sequence[float]) -> float:
    """The rate that a node's output grows with. For a join it is that of its rarest stream, since a
    combination needs one tuple of each.
    """
    first = node.operators[0] if node.operators else None
    if isinstance(first, Join):
        streams = [
            rate
            for rate, window in zip(inputs, first.windows, strict=False)
            if not isinstance(window, Relation)
        ]
        return min(streams, default=sum(inputs))
    return sum(inputs)


def selectivity(node: Node) -> float:
    """A guess from its operators alone."""
    share = 1.0
    for operator in node.operators:
        if isinstance(operator, Selection):
            share *= SELECTION
        elif isinstance(operator, Join):
            share *= SELECTION ** len(operator.conditions)
        elif isinstance(operator, Aggregate):
            share *= AGGREGATE
    return share
