"""When a state is kept follows from costs alone."""

from __future__ import annotations

import pytest

from anabranch.snapshot.timing import SHARE, Held, Limits, why_now

LIMITS = Limits(nbytes=1000.0, replay_s=2.0, least_s=1.0)


@pytest.mark.parametrize(
    ("held", "since_s", "took_s", "why"),
    [
        (Held(10, 100.0, 0.1), 60.0, 0.0, None),
        (Held(10, 1001.0, 0.1), 60.0, 0.0, "bytes"),
        (Held(10, 100.0, 2.1), 60.0, 0.0, "replay"),
        (Held(10, 1001.0, 2.1), 0.9, 0.0, None),
        (Held(10, 1001.0, 2.1), 60.0, 60.0 * SHARE + 0.1, None),
    ],
)
def test_it_is_due_when_a_restart_costs_too_much_and_it_does_not(
    held: Held, since_s: float, took_s: float, why: str | None
) -> None:
    assert why_now(held, LIMITS, since_s, took_s) == why


def test_a_recovery_time_makes_it_sooner() -> None:
    assert LIMITS.within(None) is LIMITS
    quick = LIMITS.within(1.0)
    assert why_now(Held(10, 0.0, 0.5), quick, 60.0, 0.0) == "replay"
    assert why_now(Held(10, 0.0, 0.5), LIMITS, 60.0, 0.0) is None
