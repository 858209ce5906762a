"""A run of consecutive tuples of one stream, the columns that every tuple travels with, and the
watermark that holds after it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, Self, TypeVar

from anabranch.stream.restart import END_WATERMARK, START_WATERMARK, RestartPoint

EVENT_TIME = "_ts"
"""When it happened (µs)."""
BORN = "_born"
"""When the source tuple that completed it entered the system (µs)."""
POSITION = "_pos"
"""Its number in its stream, dense from 1."""


__all__ = ["END_WATERMARK", "START_WATERMARK", "Batch", "P", "Payload"]


class Payload(Protocol):
    """The data of a batch; an Arrow record batch is an example."""

    @property
    def num_rows(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def slice(self, offset: int, length: int) -> Self: ...


P = TypeVar("P", bound=Payload)


@dataclass(frozen=True, slots=True)
class Batch(Generic[P]):
    """Tuples `first`…`last` of `stream`. An empty batch has `last == first - 1` and is a heartbeat:
    it only carries the watermark. No tuple after it has an event time below `watermark`.
    """

    stream: str
    first: int
    watermark: int
    epoch: int
    data: P
    point: RestartPoint | None = None
    """For a standby: where the task it stands by for would restart, as far as the producer knows.
    What lies before may have been let go of, and never comes."""
    _nbytes: int = field(default=-1, init=False, repr=False, compare=False)

    @property
    def nbytes(self) -> int:
        """The bytes of `data`, kept because many ask for them and they take long to compute."""
        if self._nbytes < 0:
            object.__setattr__(self, "_nbytes", self.data.nbytes)
        return self._nbytes

    def at(self, watermark: int) -> Batch[P]:
        """The same tuples, with the `watermark` that holds after them by now."""
        same = replace(self, watermark=watermark)
        object.__setattr__(same, "_nbytes", self._nbytes)
        return same

    @property
    def rows(self) -> int:
        return self.data.num_rows

    @property
    def last(self) -> int:
        return self.first + self.data.num_rows - 1

    def after(self, position: int) -> Batch[P]:
        """The part after `position`; empty if there is none."""
        gone = min(max(position + 1 - self.first, 0), self.rows)
        if gone == 0:
            return self
        return replace(self, first=self.first + gone, data=self.data.slice(gone, self.rows - gone))

    def head(self, rows: int, watermark: int) -> Batch[P]:
        """The first `rows` tuples, with a watermark that already held before this batch."""
        return replace(self, watermark=watermark, data=self.data.slice(0, rows))
