"""The processing tree of a query: operators small enough to be placed separately."""

from __future__ import annotations

from anabranch.plan.operators import Aggregate, Join, Operator, Union
from anabranch.plan.spec import Column, Spec


class Port(Spec):
    """An input of a node: the stream `stream`, called `alias` in the node's expressions."""

    stream: str
    alias: str


class Node(Spec):
    """A chain of operators at one site that turns its inputs into the stream `name`.

    A Join or a Union can only be the first of `operators`; Selections may precede an Aggregate. A
    node without either has one input.
    """

    name: str
    site: str
    inputs: tuple[Port, ...]
    operators: tuple[Operator, ...]
    columns: tuple[Column, ...]

    @property
    def stateful(self) -> bool:
        return any(isinstance(operator, Join | Aggregate | Union) for operator in self.operators)
