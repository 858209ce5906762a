"""What DEADLINE, COST and SHED ask for, and what becomes of them, as data."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from anabranch.plan.expressions import Expr, plain
from anabranch.plan.spec import Spec
from anabranch.units import show_duration


class Deadline(Spec):
    """From the moment at which the tuple that completes a result entered the system until its sink
    has it. With `best_effort` it is aimed at, though it may not hold."""

    us: Annotated[int, Field(gt=0)]
    best_effort: bool = False

    def __str__(self) -> str:
        return f"DEADLINE {show_duration(self.us)}" + (" BEST EFFORT" if self.best_effort else "")


class CostHint(Spec):
    """What an instance of a query's own task takes: so much, and so much for each tuple."""

    fixed_us: float = 0.0
    per_tuple_us: float = 0.0


class Urgency(Spec):
    """A task's sub-deadline, and the sum of those on the longest way from a source up to it. What
    is a `best_effort` only comes behind everything that is due, once it is late."""

    deadline_us: Annotated[int, Field(gt=0)]
    summed_us: Annotated[int, Field(gt=0)]
    best_effort: bool = False


class Shed(Spec):
    """Of what comes, at most `most` tuples every `per_us` are taken; those with the largest `keep`
    first, then those that came first."""

    most: Annotated[int, Field(gt=0)]
    per_us: Annotated[int, Field(gt=0)]
    keep: Expr

    def __str__(self) -> str:
        text = show_duration(self.per_us)
        per = text[1:] if text[1:].isalpha() else text
        return f"SHED ABOVE {self.most}/{per} KEEP BY {self.keep.sql(plain)}"
