"""Much work waits a while, little none; what was put off is done in the end."""

from __future__ import annotations

from anabranch.standby.detector import Patience

MUCH, LITTLE = 100, 10


def patience() -> Patience:
    return Patience(patience_s=2.0, little_bytes=50)


def test_little_is_done_at_once() -> None:
    assert not patience().waits(0.0, (0,), LITTLE)


def test_much_waits_and_is_then_done() -> None:
    standby = patience()
    assert standby.waits(10.0, (0,), MUCH)
    assert standby.waits(11.9, (0,), 2 * MUCH)
    assert not standby.waits(12.0, (0,), 3 * MUCH)
    assert not standby.waits(12.5, (0,), 3 * MUCH)  # asked again before it runs


def test_what_comes_behind_waits_anew() -> None:
    standby = patience()
    assert standby.waits(0.0, (0,), MUCH)
    assert not standby.waits(2.0, (0,), MUCH)
    assert standby.waits(2.1, (7,), MUCH)
    assert not standby.waits(4.1, (7,), MUCH)


def test_a_lull_ends_the_waiting() -> None:
    """Else the next burst would be judged by the age of the last."""
    standby = patience()
    assert standby.waits(0.0, (0,), MUCH)
    assert not standby.waits(1.0, (0,), LITTLE)
    assert standby.waits(2.5, (0,), MUCH)


def test_without_patience_nothing_waits() -> None:
    assert not Patience(0.0).waits(0.0, (0,), 1 << 30)
