"""Ranges of partitions in any order, each once."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.stage.offsets import OffsetRange, Offsets
from anabranch.stream.batch import END_WATERMARK, START_WATERMARK


def cut(times: list[int], bounds: list[int]) -> list[tuple[OffsetRange, int]]:
    """Ranges of a partition with these event times, with the greatest of each."""
    places = sorted({0, len(times), *(bound % len(times) for bound in bounds)})
    pairs = itertools.pairwise(places)
    return [(OffsetRange("p", a, b), max(times[a:b])) for a, b in pairs]


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 100), min_size=1, max_size=30),
    st.lists(st.integers(0, 100), max_size=6),
    st.randoms(use_true_random=False),
)
def test_any_order_and_any_repeats_come_to_the_same(times, bounds, draw) -> None:
    ranges = cut(times, bounds)
    offsets = Offsets({"p": 0})
    order = [*ranges, *draw.choices(ranges, k=3)]
    draw.shuffle(order)
    new = 0
    for range, newest in order:
        new += offsets.add(range, newest)
        upto = offsets.upto()["p"]
        # Section 5.1: the offsets in the state always belong to what is in it.
        expected = max(times[:upto], default=None)
        mark = START_WATERMARK if expected is None else expected - 5
        assert offsets.watermark(5) == mark
        assert Offsets.of(offsets.rows()) == offsets
        missing = [one for gap in offsets.gaps("p", len(times)) for one in _offsets(gap)]
        taken = {
            one for done, _ in order[: order.index((range, newest)) + 1] for one in _offsets(done)
        }
        assert set(missing).isdisjoint(taken)
    assert new == len(ranges)
    assert offsets.upto() == {"p": len(times)}
    assert offsets.gaps("p", len(times)) == []


def _offsets(one: OffsetRange) -> list[int]:
    return list(range(one.begin, one.end))


def test_what_comes_before_a_range_is_known_once_it_was_read() -> None:
    offsets = Offsets({"p": 0})
    first, second, third = (
        OffsetRange("p", 0, 10),
        OffsetRange("p", 10, 20),
        OffsetRange("p", 20, 30),
    )
    offsets.see(third, 7)
    assert offsets.newest_before(third) is None
    offsets.see(second, 9)
    assert offsets.newest_before(third) is None
    assert offsets.newest_before(first) == START_WATERMARK
    offsets.see(first, 3)
    assert (offsets.newest_before(second), offsets.newest_before(third)) == (3, 9)


def test_the_slowest_partition_and_the_end_decide() -> None:
    offsets = Offsets({"a": 5, "b": 0})
    offsets.add(OffsetRange("a", 5, 8), 100)
    assert offsets.watermark(0) == START_WATERMARK
    offsets.add(OffsetRange("b", 0, 1), 40)
    assert offsets.watermark(10) == 30
    offsets.set_goals({"b": 1})
    assert offsets.watermark(10) == 90
    offsets.set_goals({"a": 8})
    assert offsets.watermark(10) == END_WATERMARK


@pytest.mark.parametrize(
    "wrong", [OffsetRange("p", 5, 15), OffsetRange("p", 8, 12), OffsetRange("p", 25, 45)]
)
def test_a_range_that_was_cut_otherwise_is_refused(wrong: OffsetRange) -> None:
    offsets = Offsets({"p": 0})
    offsets.add(OffsetRange("p", 0, 10), 1)
    offsets.add(OffsetRange("p", 20, 30), 1)
    with pytest.raises(ValueError, match="cut otherwise"):
        offsets.has(wrong)


def test_an_idle_partition_holds_up_nobody_once_that_is_kept() -> None:
    offsets = Offsets({"a": 0, "b": 0})
    offsets.add(OffsetRange("a", 0, 9), 500)
    assert not offsets.raise_idle([])
    assert offsets.raise_idle(["b"])
    late = OffsetRange("b", 0, 5)
    assert offsets.newest_before(late) == 500
    assert offsets.watermark(0) == START_WATERMARK
    rows = offsets.rows()
    offsets.kept(rows)
    assert offsets.watermark(0) == 500
    assert Offsets.of(rows).newest_before(late) == 500
    offsets.add(late, 300)
    assert offsets.watermark(0) == 500


def test_a_partition_that_is_being_read_is_not_idle() -> None:
    offsets = Offsets({"a": 0, "b": 0})
    offsets.add(OffsetRange("a", 0, 9), 500)
    offsets.see(OffsetRange("b", 0, 5), 300)
    assert not offsets.raise_idle(["b"])
