"""Measures what a task costs and how fast it is, while it runs."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from math import floor, log2, sqrt
from typing import TypedDict

import numpy as np

_INSTANCES = 64
_RECENT_S = 4.0
_FEW = 4
_MANY = 6
_SELDOM = 8
_LATENCIES = 2048
_NOW_S = 60.0
"""Percentiles are those of so long, so that one slow minute is not shown for ten."""
_LEAST = 64
"""Of so many results they are in any case."""
_LEARN = 0.05


@dataclass(frozen=True)
class InstanceCost:
    """Seconds of one instance: `fixed + per_tuple * n`."""

    fixed: float
    per_tuple: float


class CostModel:
    """The cost of an instance, from the last ones.

    A busy task takes what has come while its last instance ran. So when the machine is slow for a
    while, instances are both long and large, and least squares would blame the tuples. The cost of
    a tuple is therefore taken from the quickest instances of each size; the rest is fixed, on
    average over the last `_RECENT_S`, or the last `_FEW` instances if there were not so many.
    """

    def __init__(self) -> None:
        self._last: deque[tuple[float, int, float]] = deque(maxlen=_INSTANCES)
        self._new = 0
        """Instances that are not in `_known`."""
        self._known = InstanceCost(0.0, 0.0)
        self._sized = False
        """Instances of several sizes have been seen: it is known what tuples cost."""

    def add(self, now: float, rows: int, seconds: float) -> None:
        self._last.append((now, rows, seconds))
        self._new += 1

    def cost(self) -> InstanceCost:
        """The cost. Neither part is negative; with one batch size only, all of it counts as fixed.
        It is computed again every few instances: small ones would take less time than that.
        """
        if self._new >= (_SELDOM if len(self._last) == _INSTANCES else 1):
            self._new, self._known = 0, self._found()
        return self._known

    def rows_within(self, seconds: float, besides: float) -> int | None:
        """How many tuples an instance of this length takes, at least one; None: any number.
        `besides` is the time that it takes anyway; below that, smaller ones would only cost more.
        While all were of one size, its tuples count as taking all of it: then smaller ones are
        seen, and the cost is known.
        """
        cost = self.cost()
        if cost.per_tuple > 0:
            fixed = cost.fixed + besides
            return max(1, int(max(seconds - fixed, fixed) / cost.per_tuple))
        if self._sized or not self._last:
            return None
        spent = sum(took for *_, took in self._last)
        return max(1, int(seconds * sum(rows for _, rows, _ in self._last) / spent))

    def _found(self) -> InstanceCost:
        per_tuple = _slope(self._last)
        self._sized, slope = per_tuple is not None, per_tuple or 0.0
        since = self._last[-1][0] - _RECENT_S
        recent = [one for one in self._last if one[0] >= since]
        if len(recent) < _FEW:
            recent = list(self._last)[-_FEW:]
        fixed = sum(seconds - slope * rows for _, rows, seconds in recent) / len(recent)
        if fixed < 0:
            rows = sum(rows for _, rows, _ in self._last)
            return InstanceCost(0.0, sum(seconds for *_, seconds in self._last) / rows)
        return InstanceCost(fixed, slope)


def _slope(instances: Iterable[tuple[float, int, float]]) -> float | None:
    """The slope of the quickest instances by size, in half octaves, weighted by the root of how
    many there are; None if all are of one size. An instance of a rare size need not be quick: such
    sizes count only if all are rare. (Not with numpy: every task's report asks for it, and for so
    few numbers it would take ten times as long.)
    """
    sizes: dict[int, list[tuple[float, int]]] = {}
    for _, rows, seconds in instances:
        sizes.setdefault(floor(2 * log2(rows)), []).append((seconds, rows))
    enough = min(_MANY, max(map(len, sizes.values())))
    points = [(sqrt(len(some)), *min(some)) for some in sizes.values() if len(some) >= enough]
    if len(points) < 2:
        return None
    total = sum(weight for weight, _, _ in points)
    mean_s = sum(weight * seconds for weight, seconds, _ in points) / total
    mean_rows = sum(weight * rows for weight, _, rows in points) / total
    spread = sum(weight * (rows - mean_rows) ** 2 for weight, _, rows in points)
    rise = sum(weight * (rows - mean_rows) * (s - mean_s) for weight, s, rows in points)
    return max(rise / spread, 0.0)


class Rate:
    """Events a second over the last few seconds. One thread counts, any may ask."""

    def __init__(self, window_s: float = 5.0) -> None:
        self._window_s = window_s
        self._events: deque[tuple[float, int]] = deque()
        self._lock = threading.Lock()

    def add(self, now: float, count: int) -> None:
        with self._lock:
            self._events.append((now, count))
            while self._events[0][0] < now - self._window_s:
                self._events.popleft()

    def per_second(self, now: float) -> float:
        with self._lock:
            recent = [(t, n) for t, n in self._events if t >= now - self._window_s]
        if not recent:
            return 0.0
        span = max(now - recent[0][0], 1.0)
        return sum(n for _, n in recent) / span


class Figures(TypedDict):
    """The figures in a task's report."""

    instances: int
    rows_in: int
    rows_out: int
    rate_in: float
    rate_out: float
    fixed_ms: float
    per_tuple_us: float
    p50_ms: float | None
    p99_ms: float | None


class Measures:
    """Counts, rates, cost and latency of one task. Its instances write, anybody may read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.instances = 0
        self.samples = 0
        """Of what an instance costs: instances and dry ones."""
        self.rows_in = 0
        self.rows_out = 0
        self._cost = CostModel()
        self._handling = 0.0
        """Seconds of a slot that taking tuples and giving results take beside the work itself."""
        self._rate_in = Rate()
        self._rate_out = Rate()
        self._latencies: deque[tuple[float, float]] = deque(maxlen=_LATENCIES)
        """When it was measured, and what; in seconds."""
        self._percentiles: tuple[float | None, float | None] | None = None

    def add(
        self, now: float, rows_in: int, rows_out: int, seconds: float, latencies_s: np.ndarray
    ) -> None:
        """Adds one finished instance. `latencies_s` are the ages of a sample of its output
        tuples.
        """
        with self._lock:
            self.rows_in += rows_in
            self.rows_out += rows_out
            if rows_in:  # else it only put out what had been waiting for its time
                self.instances += 1
                self.samples += 1
                self._cost.add(now, rows_in, seconds)
            self._rate_in.add(now, rows_in)
            self._rate_out.add(now, rows_out)
            self._latencies.extend((now, latency) for latency in latencies_s.tolist())
            self._percentiles = None

    def add_dry(self, now: float, seconds: float) -> None:
        """Adds an instance on one generated tuple, which counts for nothing else."""
        with self._lock:
            self.samples += 1
            self._cost.add(now, 1, seconds)

    def add_handling(self, seconds: float) -> None:
        """Adds the time around an instance that has been added. A rare long one counts for
        little.
        """
        with self._lock:
            if not self._handling:
                self._handling = seconds
            self._handling += _LEARN * (min(seconds, 4 * self._handling) - self._handling)

    def cost(self) -> InstanceCost:
        """The cost in a slot's time."""
        with self._lock:
            return self._whole()

    def _whole(self) -> InstanceCost:
        cost = self._cost.cost()
        return InstanceCost(cost.fixed + self._handling, cost.per_tuple)

    def rows_within(self, seconds: float) -> int | None:
        """How many tuples an instance may take to end in that time; None: any number."""
        with self._lock:
            return self._cost.rows_within(seconds, self._handling)

    def usual_s(self) -> float:
        """The seconds of an instance of the usual size."""
        with self._lock:
            cost = self._whole()
            rows = self.rows_in / self.instances if self.instances else 1.0
            return cost.fixed + cost.per_tuple * rows

    def latencies(self) -> list[float]:
        """The seconds of the last output tuples."""
        with self._lock:
            return [latency for _, latency in self._latencies]

    def forget_latencies(self) -> None:
        with self._lock:
            self._latencies.clear()
            self._percentiles = None

    def report(self, now: float) -> Figures:
        with self._lock:
            cost = self._whole()
            p50, p99 = self._percentiles = self._percentiles or _percentiles_ms(self._recent())
            return Figures(
                instances=self.instances,
                rows_in=self.rows_in,
                rows_out=self.rows_out,
                rate_in=self._rate_in.per_second(now),
                rate_out=self._rate_out.per_second(now),
                fixed_ms=cost.fixed * 1e3,
                per_tuple_us=cost.per_tuple * 1e6,
                p50_ms=p50,
                p99_ms=p99,
            )

    def _recent(self) -> list[float]:
        """The latencies of the last minute before the newest, but at least a few."""
        since = self._latencies[-1][0] - _NOW_S if self._latencies else 0.0
        oldest = len(self._latencies) - _LEAST
        return [
            latency
            for number, (at, latency) in enumerate(self._latencies)
            if at >= since or number >= oldest
        ]


def _percentiles_ms(seconds: Collection[float]) -> tuple[float | None, float | None]:
    """The 50th and the 99th percentile; None if there are no values."""
    if not seconds:
        return None, None
    p50, p99 = np.percentile(np.fromiter(seconds, float, len(seconds)), [50, 99]) * 1e3
    return float(p50), float(p99)
