"""Epochs and checkpoints of a state, after Sugiura and Ishikawa (2020), section 5.1.

A transaction belongs to the epoch that is open when it begins. A barrier opens the next epoch; the
one before it is frozen, and when the last of its transactions has ended it can be flushed, whole,
with the offsets that belong to it. Only one epoch is frozen and not flushed at any time. Flushed
epochs are saved in the global database later, all that it lacks at once, with the last offsets.

open ──barrier──▶ frozen ──last transaction ends──▶ whole ──flush──▶ local ──save──▶ global
"""

from __future__ import annotations

from anabranch.stage.offsets import Offsets, Range


class Epochs:
    """`offsets` are those of all transactions that have ended; `frozen` those of the epoch that is
    being flushed.
    """

    def __init__(self, offsets: Offsets, flushed: int = 0) -> None:
        self.offsets = offsets
        self.open = flushed + 1
        self.flushed = flushed
        self.frozen: Offsets | None = None
        self._running: dict[int, int] = {self.open: 0}
        self._taking: set[Range] = set()

    def enter(self, range: Range) -> int | None:
        """Begins a transaction that brings `range`, and returns the epoch it belongs to. None if
        another one brings the same range at this moment: wait for it, and ask again.

        The caller has asked before whether `offsets` has the range.
        """
        if range in self._taking:
            return None
        self._taking.add(range)
        self._running[self.open] += 1
        return self.open

    def commit(self, epoch: int, range: Range, newest: int) -> None:
        """Ends the transaction: its partials are in."""
        if not self.offsets.add(range, newest):
            raise ValueError(f"{range} came twice")
        if self.frozen is not None and epoch < self.open:
            self.frozen.add(range, newest)
        self._leave(epoch, range)

    def abort(self, epoch: int, range: Range) -> None:
        """Ends the transaction without an effect: nothing of it is in."""
        self._leave(epoch, range)

    def _leave(self, epoch: int, range: Range) -> None:
        self._taking.remove(range)
        self._running[epoch] -= 1

    def barrier(self) -> bool:
        """Opens the next epoch. False, and nothing changes, while one is frozen already."""
        if self.frozen is not None:
            return False
        self.frozen = self.offsets.copy()
        self.open += 1
        self._running[self.open] = 0
        return True

    @property
    def whole(self) -> int | None:
        """The frozen epoch, once nothing is added to it any more."""
        if self.frozen is None or self._running[self.open - 1]:
            return None
        return self.open - 1

    def flush_done(self) -> None:
        """Takes note that the whole epoch and its offsets are on disk."""
        epoch = self.whole
        if epoch is None:
            raise ValueError("no epoch is whole")
        del self._running[epoch]
        self.flushed, self.frozen = epoch, None
