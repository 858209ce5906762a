"""Which parts of a partitioned input are in the state, how far event time has come by that, and
the epochs and checkpoints in which it is kept.

A partition is a sequence; a task takes a range of it. Ranges of one partition may be taken at once
and come in any order, each once; a range that comes again changes nothing. A partition's watermark
follows the part of it that is in without a gap.

A transaction belongs to the epoch that is open when it begins. A barrier opens the next epoch; the
one before it is frozen, and when the last of its transactions has ended it can be flushed, whole,
with the offsets that belong to it. Only one epoch is frozen and not flushed at any time. Flushed
epochs are saved in the global database later, all that it lacks at once, with the last offsets.

open ──barrier──▶ frozen ──last transaction ends──▶ whole ──flush──▶ local ──save──▶ global
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from anabranch.stream.batch import END_WATERMARK, START_WATERMARK
from anabranch.window import lateness


@dataclass(frozen=True, order=True)
class OffsetRange:
    """The places `begin` ≤ offset < `end` of a partition."""

    partition: str
    begin: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.begin < self.end:
            raise ValueError(f"{self} is no range")


@dataclass
class Partition:
    """Everything before `upto` is in, and `newest` is its greatest event time, which decides
    lateness. `ahead` holds ranges that came early: begin → (end, newest). The watermark follows
    `mark`, which is less than `newest` while a rise of `newest` has not been kept yet.
    """

    upto: int = 0
    newest: int = START_WATERMARK
    ahead: dict[int, tuple[int, int]] = field(default_factory=dict)
    mark: int = START_WATERMARK

    def add(self, begin: int, end: int, newest: int) -> None:
        self.ahead[begin] = (end, newest)
        while self.upto in self.ahead:
            end, newest = self.ahead.pop(self.upto)
            self.upto, self.newest = end, max(self.newest, newest)
            self.mark = max(self.mark, newest)


class Offsets:
    """The ranges in the state, by partition. A partition begins where `begin` first says."""

    def __init__(self, starts: Mapping[str, int] | None = None) -> None:
        self._partitions = {name: Partition(at) for name, at in (starts or {}).items()}
        self._seen: dict[str, dict[int, tuple[int, int]]] = {}
        self._goals: dict[str, int] | None = None

    def begin(self, starts: Mapping[str, int]) -> None:
        """Adds these partitions; known ones stay where they are."""
        for name, at in starts.items():
            self._partitions.setdefault(name, Partition(at))

    def upto(self) -> dict[str, int]:
        """For each partition the offset after the part that is in without a gap."""
        return {name: one.upto for name, one in sorted(self._partitions.items())}

    def has(self, range: OffsetRange) -> bool:
        """Whether `range` is in. Raises ValueError if it is in only in part."""
        partition = self._partitions[range.partition]
        if range.begin < partition.upto:
            whole = range.end <= partition.upto
        elif range.begin in partition.ahead:
            whole = range.end == partition.ahead[range.begin][0]
        else:
            inside = (
                b for b, (e, _) in partition.ahead.items() if b < range.end and range.begin < e
            )
            if next(inside, None) is None:
                return False
            whole = False
        if not whole:
            raise ValueError(f"{range} was cut otherwise before: {partition}")
        return True

    def gaps(self, partition: str, end: int) -> list[OffsetRange]:
        """The ranges before `end` that are not in yet, in order; a range that is ahead is not
        cut.
        """
        state = self._partitions[partition]
        at, gaps = state.upto, []
        for begin, (behind, _) in sorted(state.ahead.items()):
            if at < min(begin, end):
                gaps.append(OffsetRange(partition, at, min(begin, end)))
            at = behind
        return [*gaps, OffsetRange(partition, at, end)] if at < end else gaps

    def add(self, range: OffsetRange, newest: int) -> bool:
        """Takes a range in; False if it was in already."""
        if self.has(range):
            return False
        self._partitions[range.partition].add(range.begin, range.end, newest)
        return True

    # -- lateness: what came before a range, whether or not it is in yet ------------------------

    def see(self, range: OffsetRange, newest: int) -> None:
        """Takes note that a task has read `range`, whose greatest event time is `newest`."""
        self._seen.setdefault(range.partition, {})[range.begin] = (range.end, newest)

    def newest_before(self, range: OffsetRange) -> int | None:
        """The greatest event time before `range`; None while part of that has not been read. For a
        range that is in already the answer does not matter.
        """
        partition = self._partitions[range.partition]
        seen = self._seen.get(range.partition, {})
        at, newest = partition.upto, partition.newest
        while at < range.begin:
            step = partition.ahead.get(at) or seen.get(at)
            if step is None:
                return None
            at, newest = step[0], max(newest, step[1])
        for begin in [one for one in seen if one < partition.upto]:
            del seen[begin]
        return newest

    # -- the watermark --------------------------------------------------------------------------

    def set_goals(self, goals: Mapping[str, int]) -> None:
        """Sets the ends of partitions after which nothing follows; there will be no other
        partitions.
        """
        self._goals = {**(self._goals or {}), **goals}

    def watermark(self, lateness_us: int) -> int:
        """The watermark: no tuple that is yet to come, and not late, has a smaller event time."""
        marks = [self._mark(name, one, lateness_us) for name, one in self._partitions.items()]
        return min(marks, default=START_WATERMARK if self._goals is None else END_WATERMARK)

    def _mark(self, name: str, state: Partition, lateness_us: int) -> int:
        if self._goals and state.upto >= self._goals.get(name, state.upto + 1):
            return END_WATERMARK
        return lateness.watermark(state.mark, lateness_us)

    # -- idle partitions ------------------------------------------------------------------------

    def reached(self, idle: Collection[str]) -> int:
        """How far the slowest of those that are not idle has come; START_WATERMARK if there is
        none.
        """
        active = [one.newest for name, one in self._partitions.items() if name not in idle]
        return min(active, default=START_WATERMARK)

    def raise_idle(self, idle: Collection[str], elsewhere: int | None = None) -> bool:
        """Keeps silent partitions from delaying the others: their next tuples are judged as if they
        had come as far as the slowest of the others, and as those `elsewhere`. Returns whether
        anything changes. The watermark follows when this has been kept (`kept`).
        """
        some = [] if len(idle) == len(self._partitions) else [self.reached(idle)]
        some += [] if elsewhere is None else [elsewhere]
        reached = min(some, default=START_WATERMARK)
        raised = False
        for name in idle:
            state = self._partitions[name]
            if reached > state.newest and not state.ahead and not self._unfinished(name):
                state.newest, raised = reached, True
        return raised

    def _unfinished(self, name: str) -> bool:
        """Whether a task has judged tuples that are not in yet."""
        upto = self._partitions[name].upto
        return any(begin >= upto for begin in self._seen.get(name, {}))

    def kept(self, rows: Iterable[tuple[str, int, int, int]]) -> None:
        """Takes note that these `rows` survive a crash: the watermark may follow them."""
        for name, begin, _, newest in rows:
            if begin < 0:
                state = self._partitions[name]
                state.mark = max(state.mark, newest)

    # -- keeping --------------------------------------------------------------------------------

    def copy(self) -> Offsets:
        copy = Offsets.of(self.rows())
        copy._goals = self._goals
        return copy

    def rows(self) -> list[tuple[str, int, int, int]]:
        """Rows of (partition, begin, end, newest): each partition's gapless part with begin −1,
        then what is ahead.
        """
        rows: list[tuple[str, int, int, int]] = []
        for name, state in sorted(self._partitions.items()):
            rows.append((name, -1, state.upto, state.newest))
            rows += [(name, begin, *rest) for begin, rest in sorted(state.ahead.items())]
        return rows

    @classmethod
    def of(cls, rows: Iterable[tuple[str, int, int, int]]) -> Offsets:
        offsets = cls()
        for name, begin, end, newest in rows:
            if begin < 0:
                offsets._partitions[name] = Partition(end, newest, mark=newest)
            else:
                offsets._partitions[name].ahead[begin] = (end, newest)
        return offsets

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Offsets) and self.rows() == other.rows()

    __hash__ = None  # type: ignore[assignment]


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
        self._taking: set[OffsetRange] = set()

    def enter(self, range: OffsetRange) -> int | None:
        """Begins a transaction that brings `range`, and returns the epoch it belongs to. None if
        another one brings the same range at this moment: wait for it, and ask again.

        The caller has asked before whether `offsets` has the range.
        """
        if range in self._taking:
            return None
        self._taking.add(range)
        self._running[self.open] += 1
        return self.open

    def commit(self, epoch: int, range: OffsetRange, newest: int) -> None:
        """Ends the transaction: its partials are in."""
        if not self.offsets.add(range, newest):
            raise ValueError(f"{range} came twice")
        if self.frozen is not None and epoch < self.open:
            self.frozen.add(range, newest)
        self._leave(epoch, range)

    def abort(self, epoch: int, range: OffsetRange) -> None:
        """Ends the transaction without an effect: nothing of it is in."""
        self._leave(epoch, range)

    def _leave(self, epoch: int, range: OffsetRange) -> None:
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
