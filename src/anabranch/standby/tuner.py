"""Adapts a standby's batch size to a load that changes, without hunting.

Measurements are averaged over `MEMORY_S`. One that is far off is held back: if the next is off in
the same direction, the load has stepped and a new average starts with it (so a measurement that
covers the step itself does not count); otherwise it was a hiccup and is forgotten. Hence the tuner
reacts to a step after two measurements, and never to a hiccup.

The batch size changes if it has less than `HOLD` room to its limits and another has `GAIN` more, or
if another is better by a `CLEAR` margin; and, unless the load has stepped less than `SETTLING_S`
ago, only if that is so `PATIENCE` times in a row. New ones are chosen with three times `HOLD`, that
is, `SPARE`.
"""

from __future__ import annotations

from dataclasses import fields, replace

from anabranch.standby.choice import BatchChoice, Options, StandbyLimits, describe
from anabranch.standby.cost import Load, StandbyModel

MEMORY_S = 8.0
STEP = 1.35
HOLD = 0.05
GAIN = 0.03
CLEAR = 0.15
PATIENCE = 3
SETTLING_S = 4.0

_NAMES = tuple(one.name for one in fields(Load) if one.name not in ("acks", "bandwidth"))
"""What is averaged, a number each. The bandwidth is what the cluster file says."""
ACKS = 64
"""The newest ones, of all measurements that are averaged."""


class Smoothing:
    """A load averaged over measurements; follows steps at once, drifts within `MEMORY_S`."""

    def __init__(self) -> None:
        self._load: Load | None = None
        self._since = self._before = 0.0
        self._off: tuple[int, ...] = ()

    def add(self, now_s: float, load: Load) -> Load:
        """The load as of now; `now_s` may not run backwards."""
        known = self._load
        off = _off(known, load) if known is not None else ()
        stepped = any(a and a == b for a, b in zip(off, self._off, strict=False))
        if known is None or stepped or now_s - self._before > MEMORY_S:
            self._start(now_s, load)
            return load
        self._off = off
        if any(off):
            return known
        elapsed = now_s - self._before
        self._before = now_s
        age = min(MEMORY_S, now_s - self._since + elapsed)
        self._load = _towards(known, load, elapsed / age if age else 0.5)
        return self._load

    def stepped(self, now_s: float) -> bool:
        """Whether so little is known of the present load that the last decision may be wrong."""
        return now_s - self._since < SETTLING_S

    def _start(self, now_s: float, load: Load) -> None:
        self._load, self._since, self._before, self._off = load, now_s, now_s, ()


class Tuner:
    """If `batch` is given, it changes nothing and only says whether the limits hold."""

    def __init__(self, limits: StandbyLimits, batch: int | None = None) -> None:
        self.limits = limits
        self._fixed = batch
        self._batch = batch
        self._smoothing = Smoothing()
        self._wishes = 0

    def step(self, now_s: float, load: Load) -> BatchChoice:
        """Takes the newest measurement, about one a second, and says what b should be now."""
        model = StandbyModel(self._smoothing.add(now_s, load))
        present = () if self._batch is None else (self._batch,)
        options = Options(model, self.limits, present)
        if self._batch is None or (self._fixed is None and self._changes(now_s, options)):
            self._batch = options.best.batch
            self._wishes = 0
        return describe(options, options[self._batch])

    def _changes(self, now_s: float, options: Options) -> bool:
        assert self._batch is not None
        self._wishes = self._wishes + 1 if _worth(options, self._batch) else 0
        return self._wishes >= (1 if self._smoothing.stepped(now_s) else PATIENCE)


def _worth(options: Options, batch: int) -> bool:
    """Whether the best option is worth leaving `batch`."""
    present, best = options[batch], options.best
    room = options.room(present)
    if room < HOLD and options.room(best) > room + GAIN:
        return True
    return options.price(present) > options.price(best) + CLEAR


def _off(known: Load, load: Load) -> tuple[int, ...]:
    """−1, 0 or 1 for each quantity that the cost depends on: below, about or above the known one.
    These few stand for all measurements, some of which may jump without any consequence.
    """
    pairs = zip(_gauges(known), _gauges(load), strict=True)
    return tuple((new > old * STEP) - (new * STEP < old) for old, new in pairs)


def _gauges(load: Load) -> tuple[float, float, float]:
    """The tuples that pile up between acks, the time to process them, and the time of a
    takeover.
    """
    pile = load.rate * (load.ack_interval_s + load.lag_s) + load.window
    each = load.per_tuple_s + load.travel_s
    return pile, load.fixed_s + pile * each, load.missed * load.heartbeat_s + 3 * load.rtt_s


def _towards(known: Load, load: Load, share: float) -> Load:
    mixed = {name: _mix(getattr(known, name), getattr(load, name), share) for name in _NAMES}
    return replace(load, **mixed, acks=(known.acks + load.acks)[-ACKS:])


def _mix(old: float, new: float, share: float) -> float:
    return old + share * (new - old)
