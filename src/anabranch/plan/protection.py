"""The protection that a query's STANDBY asks for, as data."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Annotated, Literal

from pydantic import Field

from anabranch.plan.expressions import spelled
from anabranch.plan.spec import Spec

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
