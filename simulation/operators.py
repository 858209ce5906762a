"""Small operators with the restart semantics of the real ones.

What they put out is a function of the input sequences alone, however these are cut into steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from anabranch.stream.restart import END_WATERMARK, START_WATERMARK
from simulation.rows import Row

MODULUS = 1_000_003
Numbered = tuple[int, int, int]
"""Position, event time, value."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Of one input: new tuples, the last position taken, the watermark behind it."""

    rows: list[Numbered]
    last: int
    watermark: int


@dataclass(frozen=True, slots=True)
class Produced:
    """As `site.tasks.body.Produced`."""

    rows: list[Row]
    watermark: int
    needless: tuple[int, ...]
    instant: int = START_WATERMARK


class Operator(Protocol):
    def open(self, instant: int) -> None:
        """Forget everything; results with event times up to `instant` have been given before."""

    def step(self, inputs: Sequence[Taken]) -> Produced: ...

    def state(self) -> Any:
        """All that is remembered, for JSON."""

    def restore(self, state: Any) -> None:
        """After `open`, whose instant may be a later one."""


@dataclass(frozen=True)
class Select:
    """Each tuple once, at once, unless its value is a multiple of `drop`."""

    drop: int

    def make(self) -> Operator:
        return _Select(self.drop)


@dataclass(frozen=True)
class CountTime:
    """Windows [k·slide, k·slide + width) of event time."""

    width: int
    slide: int

    def make(self) -> Operator:
        return _CountTime(self)


@dataclass(frozen=True)
class CountRows:
    """Windows of `width` tuples, a new one every `slide` ≤ `width`."""

    width: int
    slide: int

    def make(self) -> Operator:
        return _CountRows(self)


@dataclass(frozen=True)
class Join:
    """Both inputs are masters: a pair is put out at the later one's time t, if the earlier one's
    lies in (t − its width, t], and the sum of the values is no multiple of `drop`."""

    widths: tuple[int, int]
    drop: int

    def make(self) -> Operator:
        return _Join(self)

    def pair(self, a: Numbered, b: Numbered) -> tuple[int, int, int, int] | None:
        """(t, the positions, the value), if they make a result."""
        instant = max(a[1], b[1])
        together = instant - self.widths[0] < a[1] and instant - self.widths[1] < b[1]
        if not together or (a[2] + b[2]) % self.drop == 0:
            return None
        return instant, a[0], b[0], (a[2] * 31 + b[2]) % MODULUS


@dataclass(frozen=True)
class Until:
    """Tuples before an instant of event time; it ends there, though its input goes on."""

    end: int

    def make(self) -> Operator:
        return _Until(self.end)


Kind = Select | Until | CountTime | CountRows | Join


class _Select:
    def __init__(self, drop: int) -> None:
        self._drop = drop

    def open(self, instant: int) -> None:
        """Nothing is remembered."""

    def state(self) -> Any:
        return None

    def restore(self, state: Any) -> None:
        """Nothing is remembered."""

    def step(self, inputs: Sequence[Taken]) -> Produced:
        (taken,) = inputs
        rows = [(ts, value) for _, ts, value in taken.rows if value % self._drop]
        return Produced(rows, taken.watermark, (taken.last,))


class _Until:
    def __init__(self, end: int) -> None:
        self._end = end

    def open(self, instant: int) -> None:
        """Nothing is remembered."""

    def state(self) -> Any:
        return None

    def restore(self, state: Any) -> None:
        """Nothing is remembered."""

    def step(self, inputs: Sequence[Taken]) -> Produced:
        (taken,) = inputs
        rows = [(ts, value) for _, ts, value in taken.rows if ts < self._end]
        watermark = END_WATERMARK if taken.watermark >= self._end else taken.watermark
        return Produced(rows, watermark, (taken.last,))


class _CountTime:
    def __init__(self, kind: CountTime) -> None:
        self._width, self._slide = kind.width, kind.slide
        self._open: list[Numbered] = []
        self._instant = START_WATERMARK

    def open(self, instant: int) -> None:
        self._open = []
        self._instant = instant

    def state(self) -> Any:
        return self._open

    def restore(self, state: Any) -> None:
        self._open = [(position, ts, value) for position, ts, value in state]

    def step(self, inputs: Sequence[Taken]) -> Produced:
        (taken,) = inputs
        self._open += taken.rows
        if taken.watermark <= self._instant:
            return Produced([], taken.watermark, (self._needless(taken.last),), self._instant)
        sums: dict[int, tuple[int, int]] = {}
        for _, ts, value in self._open:
            for end in self._ends(ts):
                if self._instant < end <= taken.watermark:
                    count, total = sums.get(end, (0, 0))
                    sums[end] = count + 1, total + value
        rows = [(end, (17 * n + total) % MODULUS) for end, (n, total) in sorted(sums.items())]
        self._instant = taken.watermark
        self._open = [one for one in self._open if self._last_end(one[1]) > taken.watermark]
        return Produced(rows, taken.watermark, (self._needless(taken.last),), self._instant)

    def _last_end(self, ts: int) -> int:
        return ts // self._slide * self._slide + self._width

    def _ends(self, ts: int) -> range:
        last = self._last_end(ts)
        first = last - (last - ts - 1) // self._slide * self._slide
        return range(first, last + 1, self._slide)

    def _needless(self, last: int) -> int:
        """In position order; those that are done but follow one that is not wait with it."""
        return min((one[0] for one in self._open), default=last + 1) - 1


class _CountRows:
    def __init__(self, kind: CountRows) -> None:
        self._width, self._slide = kind.width, kind.slide
        self._open: list[Numbered] = []
        self._instant = START_WATERMARK

    def open(self, instant: int) -> None:
        self._open = []
        self._instant = instant

    def state(self) -> Any:
        return self._open

    def restore(self, state: Any) -> None:
        self._open = [(position, ts, value) for position, ts, value in state]

    def step(self, inputs: Sequence[Taken]) -> Produced:
        """Windows are aligned by position, and begin at k·slide + 1; one whose first tuples were
        released has had its result."""
        (taken,) = inputs
        self._open += taken.rows
        rows: list[Row] = []
        while self._open:
            late = -(self._open[0][0] - 1) % self._slide
            if late:
                del self._open[:late]
            elif len(self._open) >= self._width:
                window = self._open[: self._width]
                total = sum(value for _, _, value in window)
                if window[-1][0] > self._instant:
                    rows.append((window[-1][1], (window[0][0] * 13 + total) % MODULUS))
                del self._open[: self._slide]
            else:
                break
        needless = self._open[0][0] - 1 if self._open else taken.last
        self._instant = max(self._instant, taken.last)
        return Produced(rows, taken.watermark, (needless,), self._instant)


class _Join:
    def __init__(self, kind: Join) -> None:
        self._kind = kind
        self._open: tuple[list[Numbered], list[Numbered]] = ([], [])
        self._instant = START_WATERMARK

    def open(self, instant: int) -> None:
        self._open = ([], [])
        self._instant = instant

    def state(self) -> Any:
        return self._open

    def restore(self, state: Any) -> None:
        left, right = ([(pos, ts, value) for pos, ts, value in held] for held in state)
        self._open = left, right

    def step(self, inputs: Sequence[Taken]) -> Produced:
        for held, taken in zip(self._open, inputs, strict=True):
            held += taken.rows
        watermark = min(taken.watermark for taken in inputs)
        instant = max(self._instant, watermark - 1)
        found = [] if instant == self._instant else self._results(instant)
        self._instant = instant
        lasts = [taken.last for taken in inputs]
        needless = (self._forget(0, lasts[0]), self._forget(1, lasts[1]))
        return Produced(found, watermark, needless, instant)

    def _results(self, instant: int) -> list[Row]:
        pairs = (self._kind.pair(a, b) for a in self._open[0] for b in self._open[1])
        new = sorted(p for p in pairs if p and self._instant < p[0] <= instant)
        return [(pair[0], pair[3]) for pair in new]

    def _forget(self, index: int, last: int) -> int:
        width, held = self._kind.widths[index], self._open[index]
        held[:] = [one for one in held if one[1] + width - 1 > self._instant]
        return min((one[0] for one in held), default=last + 1) - 1
