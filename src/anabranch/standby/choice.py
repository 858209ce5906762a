"""Chooses the batch size for a load: limits on recovery and overhead in, b and the reason out.

Overhead against b is a sawtooth, so candidates are tried: every b if they are few, else a grid and
the teeth. Recovery never falls as b grows. A limit on recovery holds for the *worst* moment of
death, since a failure is rare and a promise about the average of many of them is none.

A b is taken with spare room: `margin` is the share by which the load (rate, lag or cost of a tuple)
may change until a limit breaks. With

- both limits, the b with the largest margin; beyond `ENOUGH`, the one with the least overhead;
- RECOVERY alone, the least overhead; OVERHEAD alone, the shortest recovery; each with `SPARE` room;
- both that exclude each other, RECOVERY is kept and overhead is the least that allows it: a failure
  loses time for good, bytes can be paid for. A RECOVERY that not even b = 1 can keep is given up
  and OVERHEAD kept;
- no limit, the least product of traffic (1 + overhead) and recovery time. An active standby doubles
  the one, so it pays where it more than halves the other.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from anabranch.standby.cost import Load, StandbyCost, StandbyModel
from anabranch.units import show_duration

SPARE = 0.15
ENOUGH = 0.5

_FEW = 160
_TEETH = 24
_BEYOND = (1.025, 1.05, 1.075, 1.1, 1.125, 1.15, 1.2, 1.25, 1.3, 1.4, 1.5, 1.75, 2.0)


@dataclass(frozen=True, slots=True)
class StandbyLimits:
    """The limits that the user asked for; overhead is a share of the primary's bytes."""

    recovery_s: float | None = None
    overhead: float | None = None


@dataclass(frozen=True, slots=True)
class BatchChoice:
    """`broken` names the limits that do not hold at `batch`; `why` is for people."""

    batch: int
    cost: StandbyCost
    broken: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class BatchOption:
    """One b with its overhead, the most overhead within a small change of load, its worst recovery,
    and the change of load at which the limit on overhead or on recovery breaks.
    """

    batch: int
    overhead: float
    steady: float
    worst_s: float
    overhead_margin: float
    recovery_margin: float

    @property
    def margin(self) -> float:
        return min(self.overhead_margin, self.recovery_margin)

    def broken(self) -> tuple[str, ...]:
        margins = (("recovery", self.recovery_margin), ("overhead", self.overhead_margin))
        return tuple(name for name, margin in margins if margin < 0)


class Options:
    """The candidates under given limits, and the best of them."""

    def __init__(
        self, model: StandbyModel, limits: StandbyLimits, also: Iterable[int] = ()
    ) -> None:
        self.model = model
        self.limits = limits
        batches = _candidates(model, also)
        overheads = [model.overhead(b) for b in batches]
        room = _room(batches, overheads, limits.overhead)
        self._all = {
            b: BatchOption(
                b,
                overheads[index],
                max(overheads[_near(batches, b)]),
                worst := model.worst_recovery(b),
                room[index],
                _recovery_room(model, worst, limits.recovery_s),
            )
            for index, b in enumerate(batches)
        }
        self._goal = self._reachable()
        self.best = self._pick()

    def __getitem__(self, batch: int) -> BatchOption:
        return self._all[batch]

    def least_worst(self) -> BatchOption:
        """The shortest recovery there is, at the least price."""
        shortest = self._all[1].worst_s * 1.001
        pool = (option for option in self._all.values() if option.worst_s <= shortest)
        return min(pool, key=lambda option: (option.overhead, option.batch))

    def least_overhead(self) -> BatchOption:
        """The cheapest option that keeps the limit on recovery."""
        pool = (option for option in self._all.values() if option.recovery_margin >= 0)
        return min(pool, key=lambda option: (option.overhead, option.batch))

    def room(self, option: BatchOption) -> float:
        """The smaller margin of the limits that can be kept at all."""
        if self._goal == "recovery":
            return option.recovery_margin
        return option.overhead_margin if self._goal == "overhead" else option.margin

    def price(self, option: BatchOption) -> float:
        """The price, which is to be least among the options with room, in shares."""
        slower = option.worst_s / max(self._all[1].worst_s, 1e-9)
        match self._goal:
            case "recovery":
                return option.steady
            case "overhead":
                return slower
            case "both":
                return -min(option.margin, ENOUGH)
            case _:
                return (1 + option.steady) * slower

    def _reachable(self) -> str:
        """The limits that can hold together, RECOVERY before OVERHEAD."""
        limits, options = self.limits, self._all.values()
        if limits.overhead is not None and any(option.margin >= 0 for option in options):
            return "both" if limits.recovery_s is not None else "overhead"
        if limits.recovery_s is not None and self._all[1].recovery_margin >= 0:
            return "recovery"
        return "overhead" if limits.overhead is not None else "none"

    def _pick(self) -> BatchOption:
        if self._goal == "none" and self.limits.recovery_s is not None:
            return self.least_worst()
        options = self._all.values()
        room = min(SPARE, max(map(self.room, options)))
        pool = [option for option in options if self.room(option) >= room]
        return min(pool, key=lambda o: (self.price(o), o.steady, o.worst_s, o.batch))


def choose(load: Load, limits: StandbyLimits) -> BatchChoice:
    options = Options(StandbyModel(load), limits)
    return describe(options, options.best)


def describe(options: Options, option: BatchOption) -> BatchChoice:
    """`option` as a choice, whether or not it is the best."""
    cost = options.model.cost(option.batch)
    has = f"b = {option.batch} recovers within {_times(options, option)} {_share(option)}"
    has += " of its input to the standby"
    why = [has, *_reasons(options, option)]
    return BatchChoice(option.batch, cost, option.broken(), "; ".join(why))


def _reasons(options: Options, option: BatchOption) -> Iterator[str]:
    broken = option.broken()
    if options.limits == StandbyLimits():
        active = options[1]
        yield f"an active standby (b = 1) would within {_time(active.worst_s)}, {_share(active)}"
    if "recovery" in broken:
        limit = f"RECOVERY {_time(options.limits.recovery_s or 0)}"
        least = options.least_worst()
        if least.recovery_margin < 0:
            at = f"at b = {least.batch}, {_share(least)}"
            yield f"{limit} cannot hold: {_time(least.worst_s)} is the least, {at}"
        else:
            yield f"{limit} does not hold: it would at b = {options.best.batch}"
    if "overhead" in broken:
        limit = f"OVERHEAD {options.limits.overhead or 0:.0%}"
        if "overhead" in options.best.broken():
            least = options.least_overhead()
            within = f"within RECOVERY {_time(options.limits.recovery_s or 0)}"
            at = f"at b = {least.batch}"
            yield f"{limit} cannot hold {within}: {least.overhead:.0%} is the least, {at}"
        else:
            yield f"{limit} does not hold: it would at b = {options.best.batch}"
    if not broken and options.room(option) < SPARE:
        yield f"the load may change by {options.room(option):.0%} until a limit breaks"


def _times(options: Options, option: BatchOption) -> str:
    """The recovery time, for both kinds of death if they differ."""
    model, load = options.model, options.model.load
    if load.silence == 1:
        return f"{_time(option.worst_s)},"
    process = _time(model.worst_recovery(option.batch, 1.0))
    machine = _time(model.worst_recovery(option.batch, load.silence))
    return f"{process} if its process dies, {machine} if its machine does,"


def _share(option: BatchOption) -> str:
    return f"sending {option.overhead:.0%}"


def _time(seconds: float) -> str:
    return show_duration(seconds * 1e6)


def _candidates(model: StandbyModel, also: Iterable[int]) -> list[int]:
    """The candidates. Below what every ack leaves pending all b ship everything, and above
    `zero_from` nothing.
    """
    low, zero = max(1, math.floor(model.kept)), model.zero_from()
    grid = range(low, zero + 1, max(1, (zero - low) // _FEW))
    teeth = {math.floor(model.peak / j) + up for j in range(1, _TEETH) for up in (0, 1)}
    beyond = {math.ceil(zero * factor) for factor in _BEYOND}
    below = {math.ceil(low / factor) for factor in (1.15, 1.5, 2, 4, 8, 16)}
    return sorted(b for b in {1, zero, *grid, *teeth, *beyond, *below, *also} if b >= 1)


def _near(batches: list[int], b: int) -> slice:
    """The candidates that b would stand for if the load changed by half of `SPARE`."""
    reach = 1 + SPARE / 2
    return slice(bisect_left(batches, b / reach), bisect_right(batches, b * reach))


def _room(batches: list[int], overheads: list[float], limit: float | None) -> list[float]:
    """How far, as a share, each b is from the nearest one with more overhead than `limit`; below
    zero, and from the nearest without, if it has more itself. A rate that doubles moves the
    sawtooth to twice the b."""
    if limit is None:
        return [math.inf] * len(batches)
    holds = [overhead <= limit + 1e-9 for overhead in overheads]
    low = [b for b, held in zip(batches, holds, strict=True) if held]
    high = [b for b, held in zip(batches, holds, strict=True) if not held]
    pairs = zip(batches, holds, strict=True)
    return [_distance(b, high) if held else -_distance(b, low) for b, held in pairs]


def _distance(b: int, others: list[int]) -> float:
    at = bisect_left(others, b)
    below = b / others[at - 1] if at else math.inf
    above = others[at] / b if at < len(others) else math.inf
    return min(below, above) - 1


def _recovery_room(model: StandbyModel, worst: float, limit: float | None) -> float:
    """How much longer processing may take until the worst recovery exceeds `limit`. Detection
    and round trips do not grow with the load.
    """
    if limit is None:
        return math.inf
    fixed = model.best_s
    if worst > fixed:
        return (limit - fixed) / (worst - fixed) - 1
    return math.inf if limit >= fixed else -1.0
