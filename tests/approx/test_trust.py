"""A promise that no longer holds is withdrawn, and made again; bounds follow what comes."""

import numpy as np
import pytest

from anabranch.approx.estimate import PROBATION, Trust, rehearsed

BOUNDS = np.full((3, 2), 0.4)


def rows(*values: float) -> np.ndarray:
    """One window; the second key is always near."""
    return np.array([[value, 0.1] for value in values])


def test_a_key_that_changes_loses_trust_and_gets_it_back() -> None:
    trust = Trust(2, 3, epsilon=0.5, confidence=0.95)
    for _ in range(4):
        trust.take(rows(1, 1, 1), BOUNDS)
    assert trust.trusted.tolist() == [False, True]
    for _ in range(PROBATION - 1):
        trust.take(rows(0.1, 0.1, 0.1), BOUNDS)
    assert trust.trusted.tolist() == [False, True]
    trust.take(rows(0.1, 0.1, 0.1), BOUNDS)
    assert trust.trusted.all()


def test_each_loss_takes_twice_as_long_to_mend() -> None:
    trust, waited = Trust(2, 3, 0.5, 0.95), []
    for _ in range(3):
        while trust.trusted[0]:
            trust.take(rows(1, 1, 1), BOUNDS)
        waited.append(0)
        while not trust.trusted[0]:
            trust.take(rows(0.1, 0.1, 0.1), BOUNDS)
            waited[-1] += 1
    assert waited == [PROBATION, 2 * PROBATION, 4 * PROBATION]


def test_one_surprising_reading_is_no_change() -> None:
    """It is in three windows, each of which is estimated behind three deaths."""
    trust = Trust(2, 3, 0.5, 0.95)
    for values in ((1, 1, 1), (1, 1, 1), (1, 1, 1), (0.1, 0.1, 0.1)):
        trust.take(rows(*values), BOUNDS)
        assert trust.trusted.all()


def test_what_is_missing_counts_for_nothing() -> None:
    trust = Trust(2, 3, 0.5, 0.95)
    for _ in range(50):
        trust.take(np.full((3, 2), np.nan), BOUNDS)
    assert trust.trusted.all()
    assert trust.width.tolist() == [1, 1]


@pytest.mark.parametrize("scale", [0.3, 1.0, 4.0])
def test_as_many_values_lie_outside_as_may_whatever_comes(scale: float) -> None:
    """Adaptive conformal inference: calibrated on another spread than what comes."""
    draw = np.random.default_rng(1)
    trust, outside = Trust(1, 1, epsilon=9, confidence=0.9), 0
    for n in range(2000):
        off = np.abs(draw.normal(size=(1, 1))) * scale * (1 + n / 1000)
        outside += bool(off[0, 0] > trust.width[0] * 1.645)
        trust.take(off, np.array([[1.645]]))
    assert outside / 2000 == pytest.approx(0.1, abs=0.03)


def test_what_is_promised_does_not_depend_on_the_future() -> None:
    draw = np.random.default_rng(1)
    off = np.abs(draw.normal(size=(80, 3, 4)))
    changed = off.copy()
    changed[50:] *= 100
    for one, two in zip(
        rehearsed(off, np.ones((3, 4)), 2.0, 0.95),
        rehearsed(changed, np.ones((3, 4)), 2.0, 0.95),
        strict=True,
    ):
        assert np.array_equal(one[:51], two[:51])
        assert not np.array_equal(one, two)
