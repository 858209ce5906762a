"""Who may write a query's results into a table, and how far they are there.

A row per table and query says so, beside the table that the results go to. Opening a sink takes the
row. Each transaction that writes results locks it, checks that it is still its own, and notes the
last position that it has written. So a writer that was paused, cut off or replaced writes nothing
more, whenever it wakes up, and the last position is known without a look at the results.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from anabranch.connectors.sink import behind, check_right, fenced, superseded
from anabranch.errors import SinkError


@dataclass(frozen=True)
class Held:
    """The row: who holds the fence, and the last position that is written. `holder` counts the
    holders.
    """

    run: str
    epoch: int
    holder: int
    position: int


class Fence:
    """Decides by the row of `stream`, for a writer of `run`."""

    def __init__(self, stream: str, run: str) -> None:
        self._stream, self._run = stream, run
        self._held: Held | None = None

    def check_right(self, found: Held | None, epoch: int, *, resume: bool) -> None:
        """Raises Fenced if a holder has a later right to write."""
        check_right(self._stream, self._run, epoch, found, resume=resume)

    def takes(self, before: Held | None, epoch: int, position: int) -> Held:
        """The row once we have taken it; `before` is what it was."""
        return Held(self._run, epoch, before.holder + 1 if before else 1, position)

    def taken(self, held: Held) -> None:
        """Notes that the transaction which wrote this row is committed."""
        self._held = held

    @property
    def position(self) -> int:
        """The last position that is known to be written."""
        return self._open.position

    @property
    def _open(self) -> Held:
        if self._held is None:
            raise SinkError("the sink is not open")
        return self._held

    def still(self, found: Held | None) -> int:
        """The last position that is written. Raises Fenced if another writer has taken the fence
        since, and SinkBehind if the server has lost what it had committed.
        """
        held = self._open
        if found is None or superseded(found.run, held.run):
            raise behind(0, held.position)
        if found.run == held.run and found.holder < held.holder:
            raise behind(found.position, held.position)
        if (found.run, found.holder) != (held.run, held.holder):
            raise fenced(self._stream, "another writes now")
        if found.position < held.position:
            raise behind(found.position, held.position)
        return found.position

    def noted(self, position: int) -> Held:
        """The row of a transaction that writes up to `position`."""
        return replace(self._open, position=position)
