"""What STANDBY, DEADLINE, COST and SHED ask for, and what becomes of them, as data."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Annotated, Literal

from pydantic import Field

from anabranch.plan.expressions import Expr, plain, spelled
from anabranch.plan.spec import Spec
from anabranch.units import show_duration

UNLIMITED = 2**62
"""A batch size that nothing reaches: nothing is shipped before a failure (Upstream Backup)."""
Compression = Literal["zlib", "lz4", "zstd"]
_UNITS = (("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000), ("ms", 1_000), ("us", 1))


class Standby(Spec):
    """The protection that a query asks for; None stands for what it does not ask for. With a
    `batch` the limits are only checked; without one the tuner chooses a batch for them.
    """

    on: str | None = None
    """The standby's site."""
    batch: Annotated[int, Field(ge=1, le=UNLIMITED)] | None = None
    """So many tuples are shipped to the standby at a time; 1 is Active Standby."""
    recovery_us: Annotated[int, Field(gt=0)] | None = None
    """How long it may take until a standby that took over has caught up."""
    overhead: Annotated[float, Field(ge=0, le=1)] | None = None
    """The largest part of the tuples that may be shipped to the standby."""
    compress: Compression | None = None

    def __str__(self) -> str:
        """The clause as a script writes it: `STANDBY ON centre2 BATCH 100 COMPRESS zstd`."""
        return " ".join(["STANDBY", *self._clauses()])

    def _clauses(self) -> Iterator[str]:
        if self.on is not None:
            yield f"ON {spelled(self.on)}"
        if self.batch is not None:
            yield f"BATCH {self._size().upper()}"
        for limit in self._limits():
            name, value = limit.split()
            yield f"{name.upper()} {value}"
        if self.compress:
            yield f"COMPRESS {self.compress}"

    def explained(self) -> str:
        """The text for EXPLAIN: `on centre2, batch tuned for recovery 2s and overhead 30%`."""
        on = [f"on {self.on}"] if self.on is not None else []
        compress = [f"compress {self.compress}"] if self.compress else []
        return ", ".join([*on, self._batching(), *compress])

    def _batching(self) -> str:
        limits = " and ".join(self._limits())
        if self.batch is None:
            return f"batch tuned for {limits}" if limits else "batch tuned"
        return f"batch {self._size()}" + (f" checked against {limits}" if limits else "")

    def _size(self) -> str:
        return "unlimited" if self.batch == UNLIMITED else str(self.batch)

    def _limits(self) -> Iterator[str]:
        if self.recovery_us is not None:
            yield f"recovery {exact_duration(self.recovery_us)}"
        if self.overhead is not None:
            yield f"overhead {percentage(self.overhead)}"


def exact_duration(us: int) -> str:
    """The duration in the largest unit that it is a whole number of, so that it reads back as the
    same.
    """
    unit, size = next((unit, size) for unit, size in _UNITS if us % size == 0)
    return f"{us // size}{unit}"


def percentage(share: float) -> str:
    """`30%` for 0.3; it reads back as the same number."""
    return f"{(Decimal(repr(share)) * 100).normalize():f}%"


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
