"""The operators a query is made of, as data.

Expressions are Spark SQL text over the columns of the operator's input. An operator never reads
the clock, never draws a random number and keeps the order of its input, so that its output is a
function of its input alone.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class Spec(BaseModel):
    """Frozen, comparable, and the same after a trip through JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")


class Column(Spec):
    """A column of a stream. `type` is a Spark SQL type, in Spark's own spelling once checked."""

    name: str
    type: str


class Call(Spec):
    """A wrapper or sink with its options, as in `file(path = 'a.csv', speed = 'max')`."""

    name: str
    options: dict[str, str | int | float | bool] = {}


class Selection(Spec):
    kind: Literal["selection"] = "selection"
    condition: str


class Projection(Spec):
    """`items` are (expression, name) pairs, one per output column."""

    kind: Literal["projection"] = "projection"
    items: tuple[tuple[str, str], ...]


Operator = Annotated[Selection | Projection, Field(discriminator="kind")]
