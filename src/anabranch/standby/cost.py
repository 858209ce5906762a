"""What a standby costs at batch size b: bytes on the link all the time, seconds after a failure;
measured, or assumed before enough was released.

An outlet counts as pending what was neither shipped to the standby nor released by the primary's
acks, and ships ⌊pending/b⌋·b of it whenever there is that much. With rate r, ack interval T, lag D
between a tuple and the first ack that may release it, and K tuples held by open windows:

- between two acks pending grows by what arrives, and what reaches b leaves in whole batches;
- an ack cuts pending down to what it cannot release: r·D + K.

What acks cut away never travels, so overhead is 1 − cut/arrived, times the ratio of compression.
That is the recursion n = ⌊(q + rT)/b⌋, q ← min(Q0, (q + rT) mod b), run repeatedly over the last
acks as they were measured. For a load of which only r, T, D and K are known, acks are invented: of
whole chunks, because acks and appends meet at all phases and a producer appends a chunk at a time,
and with a lag that may vary from ack to ack. What was cut is added up instead of what was shipped,
so that a run need not end where a cycle does.

A window of ten minutes releases nothing for ten minutes, and a limit on overhead has to hold during
the first. So the forecast follows from the task's windows and from what is held already: a task
whose windows are `width` long and begin every `slide` releases a slide's tuples at a time, and
keeps the rest of a window. If more is held than that, something further down holds it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from anabranch.units import show_duration

Numbers = NDArray[np.float64]
Number = TypeVar("Number", float, Numbers)
_ACKS = 256
"""Acks looked at: a cut missed at either end is 1/256 of the traffic, 0.4 points."""


def _shuffled(multiplier: int) -> list[float]:
    """The middles of `_ACKS` equal parts of (0, 1), in an order without a trend."""
    order, x = [], 0
    for _ in range(_ACKS):
        x = (multiplier * x + 55) % _ACKS
        order.append((x + 0.5) / _ACKS)
    return order


_LAG, _PHASE, _MOMENT, _DETECTION = map(_shuffled, (141, 77, 45, 205))


@dataclass(frozen=True, slots=True)
class Load:
    """The measurements of one input of a protected task and of the way to its standby."""

    rate: float
    """Tuples a second."""
    ack_interval_s: float
    lag_s: float
    """From appending a tuple to the ack that may release it: link, task, ack's way back."""
    window: float
    """Tuples that open windows hold back behind the lag."""
    tuple_bytes: float
    ratio: float
    """Compressed/plain bytes of a shipment; 1 without compression."""
    bandwidth: float | None
    """Bytes a second towards the standby; None if not limited."""
    rtt_s: float
    heartbeat_s: float
    fixed_s: float
    """A task instance costs `fixed_s + per_tuple_s · n`."""
    per_tuple_s: float
    lag_spread_s: float = 0.0
    """The lag lies within ± this; windows that slide by S tuples add S/(2·rate)."""
    chunk: float = 1.0
    """Tuples appended at a time."""
    acks: tuple[tuple[float, float], ...] = ()
    """The last acks: tuples that arrived between the one before and this one, and tuples it left.
    Without any, they are made up from the numbers above."""
    missed: float = 1.0
    """Heartbeats to miss before a takeover: 1 when a dead primary refuses connections. A limit on
    recovery has to hold for that many."""
    silence: float = 1.0
    """The same when a machine has gone silent."""

    @property
    def travel_s(self) -> float:
        """The time of a tuple on the link towards the standby."""
        return self.tuple_bytes / self.bandwidth if self.bandwidth else 0.0


@dataclass(frozen=True, slots=True)
class StandbyCost:
    """`overhead`: bytes to the standby/bytes to the primary. Recovery: from the primary's death to
    a standby that acts as primary and has the state of that moment, over all moments of death."""

    overhead: float
    recovery_s: float
    worst_recovery_s: float


class StandbyModel:
    """The costs of one load at any b; each is computed over the acks."""

    def __init__(self, load: Load) -> None:
        self.load = load
        made_up = _acks(load)
        self._cycle = list(load.acks) or made_up
        self._repeats = math.ceil(_ACKS / len(load.acks)) if load.acks else 1
        """So often that what is pending when they begin does not matter."""
        self._arrived = sum(arrived for arrived, _ in self._cycle)
        self.kept = min(kept for _, kept in self._cycle)
        """What every ack leaves pending: a smaller batch ships everything."""
        self.peak = max(_peak(self._cycle), _peak(made_up))
        """The most that can be pending; more perhaps than there was with the last few acks."""
        self.best_s = self._takeover(1.0, load.missed)
        """The worst recovery of a standby that has nothing left to process."""

    def zero_from(self) -> int:
        """The smallest b from which on nothing is shipped: b > r(T + D) + K."""
        return math.floor(self.peak) + 1

    def overhead(self, b: int) -> float:
        if b > self.peak or not self._arrived:
            return 0.0
        if b <= self.kept:
            return self.load.ratio
        pending = self._cycle[-1][1]
        cut = before = 0.0
        for passes in range(1, self._repeats + 1):
            begun, before = pending, cut
            for arrived, kept in self._cycle:
                pending = (pending + arrived) % b
                if pending > kept:
                    cut += pending - kept
                    pending = kept
            if pending == begun:  # from now on every pass is like this one
                cut = (cut - before) * passes
                break
        return self.load.ratio * max(0.0, 1 - cut / (self._arrived * passes))

    def worst_recovery(self, b: int, missed: float | None = None) -> float:
        """The recovery time if this many heartbeats are `missed` first. It never falls as b grows.
        The worst moment to die is when the standby would receive the next batch just after it has
        taken over: later in the batch it receives it before.
        """
        load = self.load
        takeover = self._takeover(1.0, load.missed if missed is None else missed)
        lot = self._lot(b)
        turn = max(0.0, lot - load.rate * takeover)
        tuples = min(lot, min(turn, self.peak) + load.rate * takeover)
        start = min(takeover, lot / load.rate) if load.rate else takeover
        fetched = start + self._travel(tuples) + self._instance(tuples) if tuples else 0.0
        # Or when something was shipped just before, and its instance comes first.
        ahead = self._instance(min(lot, self.peak))
        since = min(lot, load.rate * takeover)
        behind = ahead + self._travel(lot) + self._instance(since) if tuples else 0.0
        return max(takeover, fetched, behind)

    def mean_recovery(self, b: int) -> float:
        """The mean over moments of death, spread over the acks, and over phases of the
        heartbeat.
        """
        laid_out = self._cycle * self._repeats
        acks, before, pending = np.array(laid_out), np.empty(len(laid_out)), laid_out[-1][1]
        for index, (arrived, kept) in enumerate(laid_out):
            before[index] = pending
            pending = min((pending + arrived) % b, kept)
        lag, phase, moment, detection = (
            np.resize(one, len(acks)) for one in (_LAG, _PHASE, _MOMENT, _DETECTION)
        )
        quarter, chunk = np.arange(4)[:, None], self.load.chunk
        so_far = ((quarter + moment) / 4 * acks[:, 0] / chunk + phase) // 1 * chunk
        now = (before + np.minimum(so_far, acks[:, 0])) % b
        takeover = self._takeover((quarter / 4 + detection) % 1, self.load.missed)
        with np.errstate(over="ignore"):  # at next to no rate it takes forever to fill a batch
            times = self._recovery(b, now, (lag, phase), takeover)
        return min(float(times.mean()), self.worst_recovery(b))

    def cost(self, b: int) -> StandbyCost:
        return StandbyCost(self.overhead(b), self.mean_recovery(b), self.worst_recovery(b))

    def _takeover(self, phase: Number, missed: float) -> Number:
        """The time of detection, at `phase` of the last heartbeat's interval, and of the round
        trips that raise the epoch up- and downstream and ask for missing tuples.
        """
        load = self.load
        return (missed - 1 + phase) * load.heartbeat_s + 3 * load.rtt_s

    def _instance(self, tuples: Number) -> Number:
        return self.load.fixed_s + tuples * self.load.per_tuple_s

    def _travel(self, tuples: Number) -> Number:
        return tuples * self.load.travel_s

    def _lot(self, b: int) -> float:
        """How much the standby takes at a time: a batch, unless chunks are larger, or the fixed
        cost of its instances makes smaller batches wait for one another.
        """
        load = self.load
        busy = load.rate * load.per_tuple_s
        waiting = load.rate * load.fixed_s / (1 - busy) if busy < 1 else math.inf
        return max(float(b), load.chunk, min(waiting, self.peak))

    def _saturated(self, b: int) -> bool:
        """Whether one instance of the standby follows another without a pause."""
        unit = max(float(b), self.load.chunk)
        return b <= self.peak and self._instance(unit) * self.load.rate > unit

    def _recovery(
        self, b: int, pending: Numbers, chances: tuple[Numbers, Numbers], takeover: Numbers
    ) -> Numbers:
        """The recovery times of deaths with this much pending; see `_shipped_done`.

        Tuples that were shipped are processed anyhow. Pending tuples come by themselves if the
        upstream, which goes on, fills the batch before the takeover; otherwise the standby asks for
        them, and tuples that have come since share their task instance.
        """
        load = self.load
        done = self._shipped_done(b, pending, chances)
        unit = max(float(b), load.chunk)
        full = (b - pending) / load.rate if load.rate else np.full_like(pending, math.inf)
        filled = np.maximum(full + self._travel(unit), done) + self._instance(unit)
        lacking = pending + load.rate * takeover
        fetched = np.maximum(takeover + self._travel(lacking), done) + self._instance(lacking)
        rest = np.where(full <= takeover, np.maximum(takeover, filled), fetched)
        return np.where(pending > 0, rest, np.maximum(takeover, done))

    def _shipped_done(self, b: int, pending: Numbers, chances: tuple[Numbers, Numbers]) -> Numbers:
        """The time when the standby has processed what it was shipped before the death. The chances
        say how far an instance has come and how much of a chunk's interval is over.
        """
        load, unit = self.load, max(float(b), self.load.chunk)
        if b > self.peak or not load.rate:
            return np.zeros_like(pending)
        since = (chances[1] * load.chunk + pending // load.chunk * load.chunk) / load.rate
        if not self._saturated(b):
            return np.maximum(0.0, self._travel(unit) + self._instance(unit) - since)
        span = self._instance(self._lot(b))
        left = span * (1 - chances[0])
        return np.where(since > span - left, left, left + span)  # it came too late for this one


def cost(load: Load, b: int) -> StandbyCost:
    return StandbyModel(load).cost(b)


def zero_from(load: Load) -> int:
    return StandbyModel(load).zero_from()


def _peak(acks: list[tuple[float, float]]) -> float:
    before, peak = acks[-1][1], 0.0
    for arrived, kept in acks:
        peak = max(peak, before + arrived)
        before = min(before + arrived, kept)
    return peak


def _acks(load: Load) -> list[tuple[float, float]]:
    """A run of acks, each as (tuples arrived before it, tuples it leaves). The phase between chunks
    and acks moves through a whole chunk in the course of the run, but not between an ack and the
    one before. Acks between which nothing arrives become one, which leaves the least.
    """
    per_ack, chunk = load.rate * load.ack_interval_s, load.chunk
    if not per_ack:
        return [(0.0, load.window)]
    count = math.ceil(min(16 * _ACKS, max(_ACKS, 64 * chunk / per_ack)))
    acks: list[tuple[float, float]] = []
    for index in range(count):
        now = index * per_ack + chunk * (index + 0.5) / count
        lag = load.lag_s + load.lag_spread_s * (2 * _LAG[index % _ACKS] - 1)
        chunks = now // chunk
        arrived = chunk * (chunks - (now - per_ack) // chunk)
        kept = load.window + chunk * (chunks - (now - load.rate * max(0.0, lag)) // chunk)
        if arrived or not acks:
            acks.append((arrived, kept))
        else:
            acks[-1] = (acks[-1][0], min(acks[-1][1], kept))
    return acks


@dataclass(frozen=True, slots=True)
class Hold:
    """For how long, or for how many tuples, windows hold back what they have taken. All 0: each
    tuple is released once it is processed.
    """

    width_s: float = 0.0
    slide_s: float = 0.0
    width_rows: float = 0.0
    slide_rows: float = 0.0

    def __str__(self) -> str:
        if self.width_s:
            return f"a window of {show_duration(self.width_s * 1e6)}"
        return f"a window of {self.width_rows:,.0f} rows" if self.width_rows else "no window"


@dataclass(frozen=True, slots=True)
class AssumedReleases:
    """The form of a measurement: seconds between acks that release something, tuples that come in
    that time, and tuples that such an ack leaves.
    """

    interval_s: float
    arrived: float
    left: float


def assumed(
    hold: Hold, rate: float, held: float, ack_interval_s: float, lag_s: float
) -> AssumedReleases:
    """`rate` is above 0; `held` tuples have not been released so far."""
    slide = max(hold.slide_s * rate, hold.slide_rows)
    arrived = max(slide, ack_interval_s * rate)
    left = max(hold.width_s * rate, hold.width_rows, arrived) - arrived + lag_s * rate
    beyond = max(0.0, held - (arrived + left))
    return AssumedReleases(arrived / rate, arrived + beyond, left)
