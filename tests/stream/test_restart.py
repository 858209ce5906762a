"""Restart points (DESIGN §6): on a Level-0 ack(q), the newest one whose output is ≤ q."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.stream.restart import RestartLog, RestartPoint

steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 3), st.integers(0, 3), st.integers(0, 2)),
        st.tuples(st.just("ack"), st.integers(0, 40)),
    ),
    max_size=40,
)


@given(steps)
def test_it_does_as_a_plain_list_would(script: list[tuple]) -> None:  # type: ignore[type-arg]
    points = [RestartPoint((0, 0), 0)]
    log = RestartLog(points[0])
    acked = -1
    for kind, *numbers in script:
        if kind == "add":
            left, right, more = numbers
            newest = points[-1]
            inputs = (newest.inputs[0] + left, newest.inputs[1] + right)
            points.append(RestartPoint(inputs, newest.output + more))
            log.add(points[-1])
            continue
        before = log.current
        freed = log.acknowledge(numbers[0])
        acked = max(acked, numbers[0])
        reached = [point for point in points if point.output <= numbers[0]]
        newest_reached = max([before, *reached], key=lambda p: (p.output, p.inputs))
        assert log.current == newest_reached
        assert (freed or before) == newest_reached
        assert log.current.output <= max(acked, 0)


def test_inputs_that_yield_no_output_move_the_restart_point_too() -> None:
    log = RestartLog(RestartPoint((0,), 0))
    for position in range(1, 1001):
        log.add(RestartPoint((position,), 0))
    assert len(log._ahead) == 1
    assert log.acknowledge(0) == RestartPoint((1000,), 0)
    assert log.acknowledge(0) is None


def test_an_ack_short_of_a_point_frees_the_one_before() -> None:
    log = RestartLog(RestartPoint((0,), 0))
    log.add(RestartPoint((4,), 2))
    log.add(RestartPoint((9,), 5))
    assert log.acknowledge(4) == RestartPoint((4,), 2)
    assert log.current == RestartPoint((4,), 2)


@pytest.mark.parametrize("point", [RestartPoint((3,), 5), RestartPoint((5,), 3)])
def test_points_never_go_back(point: RestartPoint) -> None:
    log = RestartLog(RestartPoint((4,), 4))
    with pytest.raises(ValueError, match="went back"):
        log.add(point)
