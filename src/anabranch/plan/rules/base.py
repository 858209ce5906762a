"""What every rewrite rule works on: the nodes of one query, each after those it reads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from anabranch.plan.catalog import Relation
from anabranch.plan.expressions import Expr, Use
from anabranch.plan.operators import (
    Aggregate,
    Join,
    Node,
    Operator,
    Port,
    Projection,
    Selection,
    Union,
)
from anabranch.plan.spec import Column


@dataclass(frozen=True)
class Graph:
    """`nodes`, the last of which gives the query's output, over what `lookup` knows.

    `chosen` is the site of each new node that a rule may make; a node that is not named there is
    where its input is, or if that is among `never`, where the query itself is. If `chosen` is None,
    no site is chosen yet, so every node is separate from every other.
    """

    nodes: tuple[Node, ...]
    lookup: Callable[[str], Relation]
    chosen: Mapping[str, str] | None = field(default_factory=dict)
    never: Collection[str] = ()

    def node(self, stream: str) -> Node | None:
        return next((node for node in self.nodes if node.name == stream), None)

    def columns(self, stream: str) -> tuple[Column, ...]:
        node = self.node(stream)
        return node.columns if node else self.lookup(stream).wire_columns

    def site(self, stream: str) -> str:
        node = self.node(stream)
        return node.site if node else self.lookup(stream).site

    def site_for(self, name: str, stream: str) -> str:
        """The site for a new node called `name` that reads `stream`."""
        if self.chosen is None:
            return unplaced(name)
        usual = self.site(stream)
        return self.chosen.get(name, self.nodes[-1].site if usual in self.never else usual)

    def origin(self, stream: str) -> str:
        """The site at which the first of the streams it is made of comes into the query."""
        node = self.node(stream)
        return self.origin(node.inputs[0].stream) if node else self.lookup(stream).site

    def is_table(self, stream: str) -> bool:
        return self.node(stream) is None and self.lookup(stream).kind == "table"

    def with_new(self, name: str, changed: Node, *before: Node) -> Graph:
        """The graph with the node called `name` replaced by `changed`, which comes after the new
        nodes `before`.
        """
        nodes: list[Node] = []
        for node in self.nodes:
            nodes += [*before, changed] if node.name == name else [node]
        return replace(self, nodes=tuple(nodes))


Rule = Callable[[Graph], Graph]


def unplaced(name: str) -> str:
    """A name that stands for the site of a node without one: no other node has it."""
    return f"?{name}"


def expressions(operators: Iterable[Operator]) -> list[Expr]:
    """All expressions of `operators`."""
    exprs: list[Expr] = []
    for operator in operators:
        if isinstance(operator, Selection):
            exprs.append(operator.condition.expr)
        elif isinstance(operator, Projection):
            exprs += [item.expr for item in operator.items]
        elif isinstance(operator, Join):
            exprs += [condition.expr for condition in operator.conditions]
        elif isinstance(operator, Aggregate):
            exprs += [key.expr for key in operator.keys]
            exprs += [expr for call in operator.calls for expr in call.arguments]
    return exprs


def renamed(operators: Sequence[Operator], change: Callable[[Use], Use]) -> tuple[Operator, ...]:
    """`operators` with every column use changed."""
    return tuple(_renamed(operator, change) for operator in operators)


def _renamed(operator: Operator, change: Callable[[Use], Use]) -> Operator:
    if isinstance(operator, Selection):
        expr = operator.condition.expr.renamed(change)
        return Selection(condition=operator.condition.model_copy(update={"expr": expr}))
    if isinstance(operator, Projection):
        items = [
            one.model_copy(update={"expr": one.expr.renamed(change)}) for one in operator.items
        ]
        return Projection(items=tuple(items))
    if isinstance(operator, Join):
        return _renamed_join(operator, change)
    if isinstance(operator, Union):
        return operator
    return _renamed_aggregate(operator, change)


def _renamed_join(join: Join, change: Callable[[Use], Use]) -> Join:
    conditions = [
        one.model_copy(
            update={
                "expr": one.expr.renamed(change),
                "equal": one.equal and (change(one.equal[0]), change(one.equal[1])),
                "computed": one.computed and one.computed.renamed(change),
            }
        )
        for one in join.conditions
    ]
    order = tuple(change(use) for use in join.order)
    return join.model_copy(update={"conditions": tuple(conditions), "order": order})


def _renamed_aggregate(aggregate: Aggregate, change: Callable[[Use], Use]) -> Aggregate:
    keys = [one.model_copy(update={"expr": one.expr.renamed(change)}) for one in aggregate.keys]
    calls = [
        one.model_copy(update={"arguments": tuple(a.renamed(change) for a in one.arguments)})
        for one in aggregate.calls
    ]
    return aggregate.model_copy(update={"keys": tuple(keys), "calls": tuple(calls)})


def with_ports(node: Node, ports: Sequence[Port], operators: Sequence[Operator]) -> Node:
    return node.model_copy(update={"inputs": tuple(ports), "operators": tuple(operators)})
