"""The load shedder: no more than declared, the most valuable, in order."""

from __future__ import annotations

from math import isnan
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.deadline.urgency import Allowance, most_valuable

values = st.lists(st.one_of(st.floats(allow_nan=True), st.integers(0, 3).map(float)), max_size=30)


@given(values, st.integers(0, 35))
def test_the_most_valuable_are_kept_in_order(worth: list[float], keep: int) -> None:
    """Against picking the best one after the other."""
    left = list(range(len(worth)))
    expected = []
    while left and len(expected) < keep:
        best = min(left, key=lambda i: (isnan(worth[i]), 0 if isnan(worth[i]) else -worth[i], i))
        left.remove(best)
        expected.append(best)
    assert most_valuable(np.array(worth, dtype=float), keep).tolist() == sorted(expected)


def alike() -> np.ndarray:
    return np.zeros(0)


arrivals = st.lists(st.tuples(st.integers(0, 300_000), st.integers(0, 40)), max_size=40)


@given(st.integers(1, 20), st.integers(1000, 1_000_000), arrivals)
def test_no_span_of_time_brings_more_than_a_bucket_and_what_fills_it(
    most: int, per_us: int, steps: list[tuple[int, int]]
) -> None:
    allowance = Allowance(most, per_us)
    now, passed = 0, []
    for wait, wanted in steps:
        now += wait
        passed.append((now, allowance.take(now, wanted, lambda n=wanted: np.zeros(n))))
        assert 0 <= passed[-1][1] <= wanted
    for i, (begin, _) in enumerate(passed):
        for j in range(i, len(passed)):
            whole = sum(count for _, count in passed[i : j + 1])
            assert whole <= most + (passed[j][0] - begin) * most / per_us + 1e-6


def test_nothing_may_come_while_more_has_come_than_can_pass() -> None:
    allowance = Allowance(10, 1_000_000)
    assert [allowance.take(0, 10, alike), allowance.take(1, 0, alike)] == [10, 0]
    assert allowance.take(2, 30, lambda: np.zeros(30)) == 0
    assert allowance.take(3, 0, alike) == 0


def test_what_stays_below_the_limit_passes_whole() -> None:
    allowance = Allowance(1000, 1_000_000)
    assert [allowance.take(n * 100_000, 100, alike) for n in range(100)] == [100] * 100


def test_a_clock_that_is_set_back_gives_nothing() -> None:
    allowance = Allowance(10, 1_000_000)
    assert allowance.take(5_000_000, 10, lambda: np.zeros(10)) == 10
    assert allowance.take(1_000_000, 10, lambda: np.zeros(10)) == 0
    assert allowance.take(6_000_000, 10, lambda: np.zeros(10)) == 10


def test_at_three_times_the_limit_the_best_third_is_kept() -> None:
    """Tuples come one or two at a time, so that whoever looks at these alone keeps anything."""
    random = Random(7)
    allowance = Allowance(60, 1_000_000)
    kept: list[float] = []
    came: list[float] = []
    for tick in range(2000):
        worth = np.array([random.random() for _ in range(1 + tick % 2)])
        allowed = allowance.take(tick * 8333, len(worth), lambda worth=worth: worth)
        if tick > 400:
            came += worth.tolist()
            kept += worth[most_valuable(worth, allowed)].tolist()
    assert len(kept) == pytest.approx(len(came) / 3, rel=0.05)
    best = sorted(came)[-len(kept) :]
    assert sum(kept) > 0.97 * sum(best)
