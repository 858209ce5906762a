"""What tasks cost and how much streams carry: measured, asked for, or guessed from what is known
of their inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from anabranch.plan.catalog import AnyDef, QueryDef, StreamDef
from anabranch.plan.operators import Aggregate, Join, Node, Selection
from anabranch.plan.spec import Column
from anabranch.plan.tasks import TaskSpec
from anabranch.plan.windows import TableWindow

UNKNOWN_RATE = 1.0
"""Tuples a second of a stream of which nothing is known."""


@dataclass(frozen=True)
class TaskCost:
    """The seconds that an instance takes: `fixed + per_tuple * n`. `why` says how that is known."""

    fixed: float
    per_tuple: float
    why: str

    def of(self, tuples: float) -> float:
        return self.fixed + self.per_tuple * tuples

    def load(self, rate: float, wave_s: float) -> float:
        """The part of a slot that it takes while `rate` tuples a second come, if an instance holds
        the tuples of `wave_s` seconds.
        """
        return rate * self.per_tuple + self.fixed * min(rate, 1 / wave_s)


GUESSED = "guessed"
SELECTION = TaskCost(0.004, 10e-6, GUESSED)
WINDOWED = TaskCost(0.020, 50e-6, GUESSED)
SINK = TaskCost(0.002, 10e-6, GUESSED)
POCKET = TaskCost(0.005, 50e-6, GUESSED)


@dataclass(frozen=True)
class Measured:
    """What sites report: costs by task, tuples a second by stream. `tried` are costs of tasks that
    have not run for long; they were measured on generated tuples.
    """

    costs: Mapping[str, TaskCost] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)
    tried: Mapping[str, TaskCost] = field(default_factory=dict)

    def cost(self, task: TaskSpec, known: Mapping[str, AnyDef]) -> TaskCost:
        """The task's cost. COST declares that of the query's own task, and holds until the task has
        run for a while; without it, the tried cost does.
        """
        if task.name in self.costs:
            return self.costs[task.name]
        query = known.get(task.query)
        if isinstance(query, QueryDef) and query.cost and task.name == query.name:
            return TaskCost(query.cost.fixed_us / 1e6, query.cost.per_tuple_us / 1e6, "COST")
        if task.name in self.tried:
            return self.tried[task.name]
        if task.sink:
            return SINK
        if task.pocket:
            return POCKET
        windowed = any(isinstance(one, Join | Aggregate) for one in task.operators)
        return WINDOWED if windowed else SELECTION

    def rate(self, stream: str, known: Mapping[str, AnyDef]) -> float:
        """Tuples a second. A stream that sheds brings no more than its limit, and exactly that if
        nothing was measured yet.
        """
        definition = known.get(stream)
        if not isinstance(definition, StreamDef):
            return self.rates.get(stream, UNKNOWN_RATE)
        declared = definition.source.options.get("tps") if definition.source else None
        usual = declared if isinstance(declared, int | float) else UNKNOWN_RATE
        if definition.shed:
            most = definition.shed.most * 1e6 / definition.shed.per_us
            return min(self.rates.get(stream, most), most)
        return self.rates.get(stream, float(usual))


"""Tuples a second of a stream of which nothing is known: then all are alike."""
SELECTED, AGGREGATE = 0.5, 0.1
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
    rates_by_node: dict[str, float] = {}
    for node in nodes:
        inputs = [
            rates_by_node.get(port.stream, rates.measured.get(port.stream, UNKNOWN_RATE))
            for port in node.inputs
        ]
        called = name(node.name)
        share = rates.selectivities.get(called, selectivity(node))
        rates_by_node[node.name] = rates.measured.get(called, share * _driving(node, inputs))
    return rates_by_node


def _driving(node: Node, inputs: Sequence[float]) -> float:
    """The rate that a node's output grows with. For a join it is that of its rarest stream, since a
    combination needs one tuple of each.
    """
    first = node.operators[0] if node.operators else None
    if isinstance(first, Join):
        streams = [
            rate
            for rate, window in zip(inputs, first.windows, strict=False)
            if not isinstance(window, TableWindow)
        ]
        return min(streams, default=sum(inputs))
    return sum(inputs)


def selectivity(node: Node) -> float:
    """A guess from its operators alone."""
    share = 1.0
    for operator in node.operators:
        if isinstance(operator, Selection):
            share *= SELECTED
        elif isinstance(operator, Join):
            share *= SELECTED ** len(operator.conditions)
        elif isinstance(operator, Aggregate):
            share *= AGGREGATE
    return share
