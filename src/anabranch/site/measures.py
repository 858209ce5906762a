"""What a task costs and how fast it is, measured while it runs."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass

import numpy as np

_INSTANCES = 64
_RECENT_S = 4.0
_FEW = 4
_MANY = 6
_LATENCIES = 2048


@dataclass(frozen=True)
class Cost:
    """Seconds of one instance: `fixed + per_tuple * n`."""

    fixed: float
    per_tuple: float


class CostModel:
    """What an instance costs, from the last ones.

    A busy task takes what has come while its last instance ran. So when the machine is slow for a
    while, instances are both long and large, and least squares would blame the tuples. The cost of
    a tuple is therefore seen in the quickest instances of each size; the rest is fixed, on average
    over the last `_RECENT_S`, or the last `_FEW` instances if there were not so many.
    """

    def __init__(self) -> None:
        self._last: deque[tuple[float, int, float]] = deque(maxlen=_INSTANCES)

    def add(self, now: float, rows: int, seconds: float) -> None:
        self._last.append((now, rows, seconds))

    def cost(self) -> Cost:
        """Neither part is negative; with one batch size only, all of it counts as fixed."""
        if not self._last:
            return Cost(0.0, 0.0)
        ended, rows, seconds = np.array(self._last).T
        slope = _slope(rows, seconds)
        recent = min(np.searchsorted(ended, ended[-1] - _RECENT_S), max(0, len(ended) - _FEW))
        fixed = (seconds - slope * rows)[recent:].mean()
        if fixed < 0:
            return Cost(0.0, float(seconds.sum() / rows.sum()))
        return Cost(float(fixed), slope)


def _slope(rows: np.ndarray, seconds: np.ndarray) -> float:
    """Of the quickest instances by size, in half octaves; by the root of how many there are. One of
    a few need not be quick: such sizes count only if all are like that."""
    order = np.argsort(seconds)
    _, first, counts = np.unique(
        np.floor(2 * np.log2(rows[order])), return_index=True, return_counts=True
    )
    many = counts >= min(_MANY, counts.max())
    if many.sum() < 2:
        return 0.0
    quickest = order[first[many]]
    slope, _ = np.polyfit(rows[quickest], seconds[quickest], 1, w=counts[many] ** 0.25)
    return max(float(slope), 0.0)


class Rate:
    """Events a second over the last few seconds. Counted by one thread, asked for by any."""

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


class Measures:
    """Counts, rates, cost and latency of one task. Written by its instances, read by anyone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.instances = 0
        self.samples = 0
        """Of what an instance costs: instances and dry ones."""
        self.rows_in = 0
        self.rows_out = 0
        self._cost = CostModel()
        self._rate_in = Rate()
        self._rate_out = Rate()
        self._latencies: deque[float] = deque(maxlen=_LATENCIES)

    def add(
        self, now: float, rows_in: int, rows_out: int, seconds: float, latencies_s: np.ndarray
    ) -> None:
        """One finished instance. `latencies_s` are the ages of a sample of its output tuples."""
        with self._lock:
            self.instances += 1
            self.samples += 1
            self.rows_in += rows_in
            self.rows_out += rows_out
            self._cost.add(now, rows_in, seconds)
            self._rate_in.add(now, rows_in)
            self._rate_out.add(now, rows_out)
            self._latencies.extend(latencies_s.tolist())

    def add_dry(self, now: float, seconds: float) -> None:
        """An instance on one made-up tuple, which counts for nothing else."""
        with self._lock:
            self.samples += 1
            self._cost.add(now, 1, seconds)

    def cost(self) -> Cost:
        with self._lock:
            return self._cost.cost()

    def report(self, now: float) -> dict[str, float | int | None]:
        with self._lock:
            cost = self._cost.cost()
            recent = np.array(self._latencies)
            p50, p99 = np.percentile(recent, [50, 99]) * 1e3 if len(recent) else (None, None)
            return {
                "instances": self.instances,
                "rows_in": self.rows_in,
                "rows_out": self.rows_out,
                "rate_in": self._rate_in.per_second(now),
                "rate_out": self._rate_out.per_second(now),
                "fixed_ms": cost.fixed * 1e3,
                "per_tuple_us": cost.per_tuple * 1e6,
                "p50_ms": None if p50 is None else float(p50),
                "p99_ms": None if p99 is None else float(p99),
            }
