from __future__ import annotations

import pytest

from anabranch.link.meter import CATCH_UP_S, Lag


def test_who_catches_up_says_how_long_it_takes() -> None:
    reader = Lag()
    reader.see(0.0, 1_000)
    assert reader.left_s is None
    reader.see(2.0, 800)
    assert reader.left_s == pytest.approx(8.0)


def test_who_falls_behind_says_nothing() -> None:
    reader = Lag()
    for second in range(5):
        reader.see(second, 1_000 + second)
    assert reader.left_s is None


def test_what_is_long_ago_does_not_count() -> None:
    reader = Lag()
    for second in range(100):
        reader.see(second, 100_000 - second)
    for second in range(100, 100 + int(CATCH_UP_S) + 2):
        reader.see(second, 100_000 - 1_000 * (second - 99))
    assert reader.left_s == pytest.approx((100_000 - 1_000 * 22) / 1_000, rel=0.01)
