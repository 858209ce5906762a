"""Which batch size is chosen for which limits, and what is said when they cannot hold."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.standby.choice import StandbyLimits, choose
from anabranch.standby.cost import Load, StandbyModel, zero_from
from tests.standby.loads import loads, paper


def test_both_limits_leave_room_on_both_sides() -> None:
    load = paper()
    choice = choose(load, StandbyLimits(0.5, 0.3))
    assert choice.broken == ()
    for factor in (0.9, 1.1):
        changed = StandbyModel(paper(rate=factor * 1000, per_tuple_s=factor * 1e-4))
        assert changed.worst_recovery(choice.batch) <= 0.5
        assert changed.overhead(choice.batch) <= 0.3


def test_recovery_alone_is_kept_as_cheaply_as_possible() -> None:
    assert choose(paper(), StandbyLimits(recovery_s=1.0)).cost.overhead == 0
    tight = choose(paper(), StandbyLimits(recovery_s=0.32))
    assert tight.cost.worst_recovery_s <= 0.32
    assert 0 < tight.cost.overhead < 1


def test_overhead_alone_is_kept_with_the_shortest_recovery() -> None:
    none, some, any_ = (choose(paper(), StandbyLimits(overhead=limit)) for limit in (0.0, 0.8, 1.0))
    assert none.cost.overhead == 0
    assert zero_from(paper()) <= none.batch <= 1.2 * zero_from(paper())
    assert 0 < some.cost.overhead <= 0.8
    assert any_.cost.worst_recovery_s <= some.cost.worst_recovery_s < none.cost.worst_recovery_s
    assert any_.cost.worst_recovery_s == pytest.approx(StandbyModel(paper()).worst_recovery(1))


def test_without_limits_bytes_are_spent_where_they_more_than_halve_the_recovery() -> None:
    assert choose(paper(), StandbyLimits()).cost.overhead == 0
    dear = choose(paper(per_tuple_s=9e-4, window=2000), StandbyLimits())
    assert dear.cost.overhead > 0.5


def test_recovery_goes_before_overhead_when_they_exclude_each_other() -> None:
    choice = choose(paper(), StandbyLimits(0.3, 0.2))
    assert choice.broken == ("overhead",)
    assert choice.cost.worst_recovery_s <= 0.3
    assert "OVERHEAD 20% cannot hold within RECOVERY 300ms: " in choice.why


def test_a_recovery_that_nothing_can_keep_is_said_and_given_up() -> None:
    choice = choose(paper(), StandbyLimits(0.1, 0.2))
    assert choice.broken == ("recovery",)
    assert choice.cost.overhead <= 0.2
    assert "RECOVERY 100ms cannot hold: 256ms is the least, at b = " in choice.why
    alone = choose(paper(), StandbyLimits(0.1))
    assert alone.cost.worst_recovery_s == pytest.approx(0.256)


def test_no_tuples_no_price() -> None:
    choice = choose(paper(rate=0.0), StandbyLimits(1.0, 0.0))
    assert choice.broken == ()
    assert choice.cost.overhead == 0


limits = st.builds(
    StandbyLimits,
    st.one_of(st.none(), st.floats(0.01, 5)),
    st.one_of(st.none(), st.floats(0, 1)),
)


@given(loads, limits)
@settings(max_examples=40, deadline=None)
def test_a_choice_is_honest_and_no_scan_finds_what_it_calls_impossible(
    load: Load, asked: StandbyLimits
) -> None:
    choice, model = choose(load, asked), StandbyModel(load)
    most = math.inf if asked.overhead is None else asked.overhead + 1e-9
    slowest = math.inf if asked.recovery_s is None else asked.recovery_s * (1 + 1e-9)
    assert ("overhead" in choice.broken) == (choice.cost.overhead > most)
    assert ("recovery" in choice.broken) == (choice.cost.worst_recovery_s > slowest)
    if choice.broken:
        scan = range(1, model.zero_from() + 1, max(1, model.zero_from() // 50))
        fit = [b for b in scan if model.worst_recovery(b) <= slowest * 0.99]
        assert not any(model.overhead(b) <= most - 0.1 for b in fit)


def test_the_reason_needs_no_word_of_the_paper() -> None:
    """`overhead` says nothing to who has not read of it: what is sent, and to whom, does."""
    choice = choose(paper(), StandbyLimits())
    assert "recovers within" in choice.why
    assert "of its input to the standby" in choice.why
    assert "an active standby (b = 1) would within" in choice.why
    assert "overhead" not in choice.why
