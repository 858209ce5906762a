"""The operators a query is made of, as data.

An operator never reads the clock, never draws a random number and orders its output by its input
alone, so that its output is a function of its input sequences, however they are cut into batches.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from anabranch.plan.expressions import Expr, Use
from anabranch.plan.spec import Call, Column, Spec
from anabranch.plan.windows import Panes, Window

__all__ = [
    "Aggregate", "AggregateCall", "Call", "Column", "Condition", "Item", "Join", "Operator",
    "Projection", "Selection", "Spec",
]  # fmt: skip


class Condition(Spec):
    """One conjunct of a WHERE.

    `equal` are the two columns, of two inputs and of one type, of which it says only that they are
    equal. `safe`: evaluating it can never fail, so it may be asked of tuples that would otherwise
    not have come so far.
    """

    expr: Expr
    equal: tuple[Use, Use] | None = None
    safe: bool = False


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

    The operators behind it see each input's columns as `input.column`.
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

    The operators behind it see `keys` and `calls` by their names, and `window_start`,
    `window_end`, all as columns of the input "".
    """

    kind: Literal["aggregate"] = "aggregate"
    panes: Panes
    keys: tuple[Item, ...] = ()
    calls: tuple[AggregateCall, ...] = ()


Operator = Annotated[Selection | Projection | Join | Aggregate, Field(discriminator="kind")]
