"""The tuner against loads that step, with measurements that are noisy; seeded."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest

from anabranch.standby.choice import BatchChoice, StandbyLimits, choose
from anabranch.standby.cost import Load, StandbyModel
from anabranch.standby.tuner import Tuner
from tests.standby.loads import paper

PHASES = ((1, 1), (5, 1), (1, 1), (1, 3), (1, 1))
"""Rate and cost of a tuple, as factors, for `LENGTH` seconds each."""
LENGTH = 15
SETTLED = 5


@dataclass
class Second:
    phase: int
    second: int
    true: Load
    choice: BatchChoice


def noisy(load: Load, rng: random.Random, noise: float = 0.1) -> Load:
    names = ("rate", "per_tuple_s", "fixed_s", "lag_s", "rtt_s")
    return replace(load, **{n: getattr(load, n) * max(0.3, rng.gauss(1, noise)) for n in names})


def watched(tuner: Tuner, base: Load, seed: int) -> Iterator[Second]:
    rng = random.Random(seed)
    for phase, (rate, each) in enumerate(PHASES):
        true = replace(base, rate=rate * base.rate, per_tuple_s=each * base.per_tuple_s)
        for second in range(LENGTH):
            choice = tuner.step(phase * LENGTH + second, noisy(true, rng))
            yield Second(phase, second, true, choice)


def keeps(limits: StandbyLimits, load: Load, b: int) -> bool:
    model = StandbyModel(load)
    recovers = limits.recovery_s is None or model.worst_recovery(b) <= limits.recovery_s
    return recovers and (limits.overhead is None or model.overhead(b) <= limits.overhead)


@pytest.mark.parametrize("window", [0, 100])
@pytest.mark.parametrize(
    "limits",
    [
        StandbyLimits(0.5, 0.3),
        StandbyLimits(0.5, 0.9),
        StandbyLimits(0.4),
        StandbyLimits(None, 0.8),
    ],
    ids=str,
)
def test_limits_hold_while_the_load_steps(limits: StandbyLimits, window: int) -> None:
    base = paper(window=window)
    seconds = list(watched(Tuner(limits), base, seed=window + 1))
    possible = {s.true: not choose(s.true, limits).broken for s in seconds}
    judged = [s for s in seconds if s.second >= SETTLED and possible[s.true]]
    held = sum(keeps(limits, s.true, s.choice.batch) for s in judged)
    assert len(judged) >= 0.75 * (LENGTH - SETTLED) * len(PHASES)
    assert held >= 0.95 * len(judged)
    changes = [b.phase for a, b in pairwise(seconds) if a.choice.batch != b.choice.batch]
    assert max(changes.count(phase) for phase in range(len(PHASES))) <= 5
    assert len(changes) <= 2.5 * len(PHASES)


def test_a_steady_load_settles() -> None:
    rng = random.Random(3)
    tuner = Tuner(StandbyLimits(0.5, 0.3))
    batches = [tuner.step(now, noisy(paper(), rng)).batch for now in range(60)]
    assert len(set(batches[5:])) == 1


def test_one_measurement_off_is_a_hiccup_and_two_are_a_step() -> None:
    tuner = Tuner(StandbyLimits(overhead=0.0))
    calm, burst = paper(), paper(rate=5000.0)
    first = [tuner.step(now, calm).batch for now in range(10)][-1]
    assert tuner.step(10, burst).batch == first
    assert tuner.step(11, calm).batch == first
    assert tuner.step(12, burst).batch == first
    assert tuner.step(13, burst).batch > 1750


def test_a_drift_is_followed() -> None:
    tuner = Tuner(StandbyLimits(overhead=0.0))
    for now in range(100):
        load = paper(rate=1000 * 1.005**now)
        assert StandbyModel(load).overhead(tuner.step(now, load).batch) == 0


def test_a_fixed_batch_is_only_checked() -> None:
    tuner = Tuner(StandbyLimits(0.5, 0.3), batch=100)
    choice = tuner.step(0, paper())
    assert choice.batch == 100
    assert choice.broken == ("overhead",)
    assert "OVERHEAD 30% does not hold: it would at b = " in choice.why
    assert Tuner(StandbyLimits(), batch=2**62).step(0, paper()).cost.overhead == 0
