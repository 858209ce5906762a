"""The operators a query is made of, as data, and the processing tree of them: small enough to be
placed apart.

An operator never reads the clock, never draws a random number and orders its output by its input
alone, so that its output is a function of its input sequences, however they are cut into batches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import Field

from anabranch.plan.expressions import Expr, Use
from anabranch.plan.keep import Past
from anabranch.plan.spec import Call, Column, Spec
from anabranch.plan.windows import Panes, Window

__all__ = [
    "Aggregate",
    "AggregateCall",
    "Call",
    "Column",
    "Condition",
    "Equality",
    "Item",
    "Join",
    "Operator",
    "Projection",
    "Selection",
    "Spec",
    "indexable",
]


_INDEXED = frozenset(
    {
        "binary",
        "bigint",
        "boolean",
        "date",
        "double",
        "float",
        "int",
        "smallint",
        "string",
        "timestamp",
        "timestamp_ntz",
        "tinyint",
    }
)


def indexable(type_: str) -> bool:
    """Whether a join can look up values of this Spark SQL type. It cannot look up text with a
    collation: texts that a collation takes for equal differ in their bytes.
    """
    return type_ in _INDEXED or type_.startswith("decimal(")


class Equality(Spec):
    """Expressions of two inputs, each of one, that have one `type`. A join computes them as its
    tuples come, and has an index of them.
    """

    sides: tuple[Expr, Expr]
    type: str

    def renamed(self, change: Callable[[Use], Use]) -> Equality:
        left, right = self.sides
        return Equality(sides=(left.renamed(change), right.renamed(change)), type=self.type)


class Condition(Spec):
    """One conjunct of a WHERE.

    `equal` are the two columns, of two inputs and of one type, if it says only that they are equal;
    `computed` the two expressions, if they are not both columns. `safe` means that evaluating it
    can never fail, so it may be evaluated for tuples that would otherwise be filtered out before
    it.
    """

    expr: Expr
    equal: tuple[Use, Use] | None = None
    computed: Equality | None = None
    safe: bool = False

    @property
    def indexed(self) -> tuple[str, str] | None:
        """The inputs between which it is an equality that an index can answer."""
        if self.computed:
            (left,), (right,) = (side.inputs for side in self.computed.sides)
            return (left, right) if left != right else None
        if self.equal and self.equal[0].input != self.equal[1].input:
            return self.equal[0].input, self.equal[1].input
        return None


class Item(Spec):
    """One output column. `type` is its Spark SQL type."""

    expr: Expr
    name: str
    type: str


class Selection(Spec):
    kind: Literal["selection"] = "selection"
    condition: Condition


class Projection(Spec):
    kind: Literal["projection"] = "projection"
    items: tuple[Item, ...]


class Join(Spec):
    """The MASTER query's evaluation over a node's inputs; always its first operator.

    `windows` belong to the first inputs in order; inputs beyond them are masters only. `masters`
    are the indexes of the inputs whose tuples are evaluation instants. Results of one instant are
    ordered by `order` (positions `_pos` of inputs, or columns that hold such positions).

    The operators after it see each input's columns as `input.column`.
    """

    kind: Literal["join"] = "join"
    windows: tuple[Window, ...]
    masters: tuple[int, ...]
    conditions: tuple[Condition, ...] = ()
    order: tuple[Use, ...]
    partial: bool = False
    """Also give `_until`, and `order` in columns called `_order.0`, `_order.1`, …"""


class AggregateCall(Spec):
    """`function` over `arguments`, called `name` from here on.

    `function` is SUM, COUNT, AVG, MIN, MAX, VAR_POP, VAR_SAMP, STDDEV_POP, STDDEV_SAMP, or the name
    of a user's aggregate, whose `source` then says where its class is. COUNT(*) has no arguments.
    `type` is the result's Spark SQL type.
    """

    function: str
    arguments: tuple[Expr, ...] = ()
    distinct: bool = False
    name: str
    type: str
    source: Call | None = None


class Aggregate(Spec):
    """A window aggregate over a node's one input; always its first operator.

    The operators after it see `keys` and `calls` by their names, and `window_start`,
    `window_end`, all as columns of the input "".
    """

    kind: Literal["aggregate"] = "aggregate"
    panes: Panes
    keys: tuple[Item, ...] = ()
    calls: tuple[AggregateCall, ...] = ()


class Union(Spec):
    """All inputs of a node, which have the same columns, as one stream, ordered by event time,
    input and position; always its first operator. Operators after it see it as the first input.
    """

    kind: Literal["union"] = "union"


Operator = Annotated[Selection | Projection | Join | Aggregate | Union, Field(discriminator="kind")]


class Port(Spec):
    """An input of a node: the stream `stream`, called `alias` in the node's expressions."""

    stream: str
    alias: str
    past: Past | None = Field(default=None, exclude_if=lambda past: past is None)
    """From when on, if not from now; never of a stream that comes with the query. Nodes that read
    from now on have the names that they had before there was such a thing."""


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
