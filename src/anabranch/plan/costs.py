"""What tasks cost and how much streams carry: measured, asked for, or guessed from what is known
of their inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import NamedTuple

import numpy as np

from anabranch.placement.problem import Rate
from anabranch.plan.catalog import AnyDef, PocketDef, QueryDef, StreamDef
from anabranch.plan.operators import Aggregate, Join, Node, Selection
from anabranch.plan.spec import Column
from anabranch.plan.tasks import TaskSpec
from anabranch.plan.windows import TableWindow

UNKNOWN_RATE = 1.0
"""Tuples a second of a stream of which nothing is known: then all are alike."""
SELECTED, AGGREGATE = 0.5, 0.1
"""Tuples out per tuple in."""
_BYTES = {"boolean": 1, "tinyint": 1, "smallint": 2, "int": 4, "float": 4, "date": 4}
_WIDE, _USUAL, _OVERHEAD = 24, 8, 16


@dataclass(frozen=True)
class Rates:
    """`measured` are tuples a second by stream, in each sample if there are several;
    `selectivities` tuples out per tuple in by node and pocket."""

    measured: Mapping[str, Rate] = field(default_factory=dict)
    selectivities: Mapping[str, float] = field(default_factory=dict)


class _Maker(NamedTuple):
    """What makes a stream: a node of a query, or a pocket with its hint."""

    name: str
    inputs: tuple[str, ...]
    selectivity: float
    node: Node | None = None


class Streams:
    """Tuples a second of every stream of the definitions in `known`."""

    def __init__(self, known: Mapping[str, AnyDef], rates: Rates) -> None:
        self._known = known
        self._rates = rates
        self._found: dict[str, Rate] = {}
        self._makers: dict[str, _Maker] = {}
        for one in known.values():
            if isinstance(one, PocketDef):
                hint = one.program.selectivity
                self._makers[one.output] = _Maker(one.name, one.reads, hint)
            elif isinstance(one, QueryDef):
                for node in one.nodes:
                    inputs = tuple(port.stream for port in node.inputs)
                    maker = _Maker(node.name, inputs, selectivity(node), node)
                    self._makers.setdefault(node.name, maker)

    def rate(self, stream: str) -> Rate:
        if stream not in self._found:
            self._found[stream] = 0.0  # a pocket may read what it makes
            self._found[stream] = self._rate(stream)
        return self._found[stream]

    def _rate(self, stream: str) -> Rate:
        maker = self._makers.get(stream)
        measured = self._rates.measured.get(stream)
        if measured is not None or maker is None:
            return limited(self._known.get(stream), measured)
        share = self._rates.selectivities.get(maker.name, maker.selectivity)
        inputs = [self.rate(one) for one in maker.inputs]
        return share * (_driving(maker.node, inputs) if maker.node else inputs[0])


def limited(one: AnyDef | None, measured: Rate | None) -> Rate:
    """What a stream brings: not more than SHED lets through. If nothing was measured, as much as
    that or its source says."""
    if not isinstance(one, StreamDef):
        return UNKNOWN_RATE if measured is None else measured
    if one.shed:
        most = one.shed.most * 1e6 / one.shed.per_us
        return most if measured is None else np.minimum(measured, most)
    declared = one.source.options.get("tps") if one.source else None
    usual = float(declared) if isinstance(declared, int | float) else UNKNOWN_RATE
    return usual if measured is None else measured


def width(columns: Sequence[Column]) -> int:
    """The estimated bytes of a tuple on its way, its times included."""
    return _OVERHEAD + sum(_bytes(column.type.lower()) for column in columns)


def _bytes(type_: str) -> int:
    if type_ in ("string", "binary") or type_.startswith(("array", "map", "struct", "varchar")):
        return _WIDE
    return _BYTES.get(type_, _USUAL)


def _driving(node: Node, inputs: Sequence[Rate]) -> Rate:
    """The rate that a node's output grows with: of a join that of its rarest stream, since a
    combination needs one of each."""
    first = node.operators[0] if node.operators else None
    if isinstance(first, Join):
        streams = [
            rate
            for rate, window in zip(inputs, first.windows, strict=False)
            if not isinstance(window, TableWindow)
        ]
        if streams:
            return reduce(np.minimum, streams)
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
        """Tuples a second. A stream that sheds brings no more than that, and if nothing was
        measured yet, as much."""
        return float(limited(known.get(stream), self.rates.get(stream)))


MOST_GUESSED = 0.05
"""The load of a task of which nobody knows what it costs, at most."""
IDLE_WAVE_S = 0.1
"""Without a deadline, an instance is taken to hold what comes in so long."""


def expected_loads(
    specs: Iterable[TaskSpec], known: Mapping[str, AnyDef], rates: Rates
) -> dict[str, float]:
    """The part of a slot that each task will take, by COST. A guess moves nothing away from a site
    that has room: it counts as little, so that only a site that is full already is avoided.
    """
    streams, unmeasured = Streams(known, rates), Measured()
    loads: dict[str, float] = {}
    for task in specs:
        comes = sum(float(np.mean(streams.rate(one.stream))) for one in task.inputs)
        cost = unmeasured.cost(task, known)
        load = cost.load(comes, IDLE_WAVE_S)
        loads[task.name] = min(load, MOST_GUESSED) if cost.why == GUESSED else load
    return loads
