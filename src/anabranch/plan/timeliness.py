"""What DEADLINE, COST and SHED ask for, and how tasks carry it, as data."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from anabranch.plan.expressions import Expr, plain
from anabranch.plan.spec import Spec
from anabranch.units import show_duration


class Deadline(Spec):
    """The time from the moment at which the tuple that completes a result entered the system until
    its sink has it. With `best_effort` it is aimed at, though it may not hold.
    """

    us: Annotated[int, Field(gt=0)]
    best_effort: bool = False

    def __str__(self) -> str:
        return f"DEADLINE {show_duration(self.us)}" + (" BEST EFFORT" if self.best_effort else "")


class CostHint(Spec):
    """The time that an instance of a query's own task takes: a fixed part, and a part for each
    tuple.
    """

    fixed_us: float = 0.0
    per_tuple_us: float = 0.0


class Urgency(Spec):
    """A task's sub-deadline, and the sum of sub-deadlines on the longest way from a source up to
    it. A `best_effort` task that is late comes after everything that is still due.
    """

    deadline_us: Annotated[int, Field(gt=0)]
    summed_us: Annotated[int, Field(gt=0)]
    best_effort: bool = False


class Shed(Spec):
    """At most `most` tuples are taken every `per_us`: those with the largest `keep` first, and
    among equals those that came first.
    """

    most: Annotated[int, Field(gt=0)]
    per_us: Annotated[int, Field(gt=0)]
    keep: Expr

    def __str__(self) -> str:
        text = show_duration(self.per_us)
        per = text[1:] if text[1:].isalpha() else text
        return f"SHED ABOVE {self.most}/{per} KEEP BY {self.keep.sql(plain)}"
