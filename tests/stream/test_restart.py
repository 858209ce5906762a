"""Restart points: on a Level-0 ack(q), the newest one whose output is ≤ q."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.stream.restart import (
    RestartLog,
    RestartPoint,
    SnapshotName,
    beyond,
    gather,
    point_of,
    told_to,
)

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


def chain(input_: int, output: int) -> RestartPoint:
    """Of a task that `b` reads, which `c` reads twice."""
    c = RestartPoint((output, output + 1), output)
    b = RestartPoint((output,), output, readers=beyond("b", {"c": c, "c#2": c}))
    return RestartPoint((input_,), output, instant=5, incarnation=3, readers=beyond("a", {"b": b}))


def test_a_point_brings_those_of_all_that_read_it() -> None:
    known = gather([{"a": chain(9, 4)}, {"b": RestartPoint((7,), 2)}])
    assert sorted(known) == ["a", "b", "c"]
    assert known["a"] == chain(9, 4)
    assert known["b"].alone == RestartPoint((7,), 4)
    assert known["b"].readers == {"c": RestartPoint((4, 5), 4)}
    assert known["c"].alone == RestartPoint((4, 5), 4)


def test_those_who_know_of_readers_join_too() -> None:
    joined = chain(9, 4).join(chain(2, 6))
    assert joined.alone == RestartPoint((9,), 6, 5, 3)
    assert joined.readers == {"b": RestartPoint((6,), 6), "c": RestartPoint((6, 7), 6)}
    assert chain(9, 4).alone.join(chain(2, 1)).readers == chain(2, 1).readers


def test_of_another_task_of_the_same_name_nothing_holds() -> None:
    old, new = RestartPoint((90,), 80, incarnation=1), RestartPoint((2,), 1, incarnation=2)
    assert old.join(new) == new.join(old) == new


def test_the_log_is_of_the_task_it_began_with() -> None:
    log = RestartLog(chain(0, 0))
    log.add(RestartPoint((5,), 2, 5))
    assert log.acknowledge(2) == RestartPoint((5,), 2, 5, incarnation=3)


def test_a_point_survives_a_trip_as_json() -> None:
    assert point_of(json.loads(json.dumps(asdict(chain(9, 4))))) == chain(9, 4)
    assert point_of({"inputs": [1], "output": 2, "epoch": 4}) == RestartPoint((1,), 2)


def test_a_circle_of_tasks_does_not_remember_itself_without_end() -> None:
    points: dict[str, RestartPoint] = {}
    ring = ("a", "b", "c")
    for turn in range(30):
        task, reader = ring[turn % 3], ring[(turn + 1) % 3]
        readers = {reader: points[reader]} if reader in points else {}
        points[task] = RestartPoint((turn,), turn, readers=beyond(task, readers))
    assert sorted(gather([{"a": points["a"]}])) == ["a", "b", "c"]
    assert sorted(points["a"].readers) == ["b", "c"]


def test_a_plan_that_meets_again_and_again_is_remembered_once() -> None:
    """Each of 30 tasks is read by two that the next one joins: a billion paths, 90 points."""
    consumers: dict[str, RestartPoint] = {}
    for layer in range(30):
        for half in ("x", "y"):
            readers = beyond(f"{half}{layer}", consumers)
            consumers[f"{half}{layer}"] = RestartPoint((layer,), layer, readers=readers)
        both = {name: consumers[name] for name in (f"x{layer}", f"y{layer}")}
        consumers = {f"z{layer}": RestartPoint((0,), 0, readers=beyond(f"z{layer}", both))}
    (point,) = consumers.values()
    assert len(point.readers) == 89
    assert not any(one.readers for one in point.readers.values())


def test_consumers_are_told_by_the_name_of_their_task() -> None:
    readers = chain(9, 4).readers
    told = told_to("c#2", readers)
    assert told
    assert told.alone == readers["c"]
    assert told_to("d", readers) is None


def test_a_task_called_like_the_second_input_of_another_is_itself() -> None:
    both = {"q": RestartPoint((9,), 9, incarnation=1), "q#2": RestartPoint((3,), 3, incarnation=2)}
    assert gather([both]) == both
    assert beyond("q", both) == {"q#2": both["q#2"]}
    assert gather([{"p": RestartPoint((1,), 1, readers=both)}]).keys() == {"p", "q", "q#2"}


S1, S2 = SnapshotName(0, 1, "a"), SnapshotName(0, 2, "a")


def test_a_state_that_is_kept_late_moves_the_inputs_and_takes_no_output_back() -> None:
    log = RestartLog(RestartPoint((0,), 0))
    log.add(RestartPoint((700,), 52, 52))
    log.acknowledge(52)
    moved = log.add_kept(RestartPoint((1000,), 50, 50, snapshot=S1))
    assert moved == log.current == RestartPoint((1000,), 52, 52, snapshot=S1)


def test_a_state_waits_for_the_results_before_it() -> None:
    log = RestartLog(RestartPoint((0,), 0))
    assert log.add_kept(RestartPoint((1000,), 50, 50, snapshot=S1)) is None
    assert log.acknowledge(49) is None
    assert log.acknowledge(50) == RestartPoint((1000,), 50, 50, snapshot=S1)


def test_open_windows_that_began_before_the_state_do_not_take_it_back() -> None:
    log = RestartLog(RestartPoint((0,), 0))
    log.add_kept(RestartPoint((1000,), 50, 50, snapshot=S1))
    log.add(RestartPoint((900,), 55, 55))
    assert log.acknowledge(55) == RestartPoint((1000,), 55, 55, snapshot=S1)
    log.add(RestartPoint((1001,), 60, 60))
    assert log.acknowledge(60) == RestartPoint((1001,), 60, 60)
    assert log.snapshots == set()


def test_of_two_states_of_one_run_the_later_one_holds() -> None:
    one = RestartPoint((1000, 1000), 50, snapshot=S1)
    other = RestartPoint((1000, 2000), 60, snapshot=S2)
    assert one.join(other) == other.join(one) == other


def test_a_state_of_a_run_that_was_replaced_is_not_mixed_with_its_successors() -> None:
    old = RestartPoint((1000, 3000), 50, snapshot=SnapshotName(1, 9, "a"))
    new = RestartPoint((2000, 2000), 60, snapshot=SnapshotName(2, 1, "b"))
    assert old.join(new) == new.join(old) == new


def test_what_one_input_needs_no_more_goes_though_the_state_is_that_of_before() -> None:
    state = RestartPoint((1000, 1000), 50, 50, snapshot=S1)
    plain = RestartPoint((1200, 800), 55, 55)
    assert state.join(plain) == RestartPoint((1200, 1000), 55, 55, snapshot=S1)


def test_a_point_with_a_state_survives_json() -> None:
    inner = RestartPoint((1,), 2, snapshot=S2)
    point = RestartPoint((1, 2), 3, 4, 5, {"q": inner}, S1)
    assert point_of(json.loads(json.dumps(asdict(point)))) == point
