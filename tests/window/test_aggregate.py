"""Window aggregates against the naive evaluation, however the input is cut and restarted."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anabranch.errors import ConfigError, TaskError
from anabranch.plan.operators import AggregateCall
from anabranch.plan.windows import RowPanes, TimePanes
from anabranch.stream.batch import END_WATERMARK, START_WATERMARK
from tests.window.naive_aggregate import (
    Cut,
    Panes,
    Row,
    bits,
    call,
    cuts,
    engine,
    naive,
    run,
    stepper,
)

CALLS = [
    call("COUNT"),
    call("COUNT", "x"),
    call("COUNT", "x", "n"),
    call("COUNT", "n", distinct=True),
    call("COUNT", "s", "n", distinct=True),
    call("SUM", "n"),
    call("SUM", "x"),
    call("SUM", "d"),
    call("AVG", "x"),
    call("AVG", "d"),
    call("MIN", "x"),
    call("MAX", "x"),
    call("MIN", "s"),
    call("MAX", "n"),
    call("MAX", "d"),
    call("VAR_POP", "x"),
    call("VAR_SAMP", "n"),
    call("STDDEV_POP", "n"),
    call("STDDEV_SAMP", "x"),
]
EXACT = ["COUNT", "SUM", "MIN", "MAX"]

whole_floats = st.integers(-50, 50).map(float)
floats = st.one_of(
    st.floats(-1e6, 1e6),
    st.sampled_from([1e16, -1e16, 1.0, 0.1, -0.0, 0.0, 1e-300, math.inf, math.nan]),
)


def rows(xs: st.SearchStrategy[float], spread: int = 40) -> st.SearchStrategy[list[Row]]:
    row = st.fixed_dictionaries(
        {
            "k": st.sampled_from(["a", "b", "", None]),
            "j": st.sampled_from([1, 2, None]),
            "n": st.none() | st.integers(-9, 9),
            "x": st.none() | xs,
            "s": st.none() | st.sampled_from(["", "a", "é", "z", "😀"]),
            "d": st.none() | st.decimals(-99, 99, places=2),
            "_ts": st.integers(-spread, spread),
            "_born": st.integers(0, 9),
        }
    )
    return st.lists(row, max_size=30)


time_panes = st.tuples(st.integers(1, 25), st.integers(1, 12)).map(
    lambda pair: TimePanes(width_us=pair[0], slide_us=pair[1])
)
row_panes = st.tuples(st.integers(1, 12), st.integers(1, 8)).map(
    lambda pair: RowPanes(width=pair[0], slide=pair[1])
)
any_panes = st.one_of(time_panes, time_panes, row_panes)
key_lists = st.sampled_from([[], ["k"], ["k", "j"]])
call_lists = st.lists(st.sampled_from(CALLS), min_size=1, max_size=5, unique_by=lambda c: c.name)
blocks = st.sampled_from([1, 3, 4, 1000])


def examples(count: int) -> settings:
    return settings(max_examples=count, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def draw_cuts(data: st.DataObject, stream: list[Row], first: int = 1) -> list[Cut]:
    at = data.draw(st.lists(st.integers(first - 1, max(len(stream), first - 1)), max_size=8))
    return cuts(stream, at, lambda: data.draw(st.sampled_from([0, 0, 1, 7])), first)


def close(got: list[Any], wanted: list[Any]) -> bool:
    def same(a: Any, b: Any) -> bool:
        if isinstance(a, float) and isinstance(b, float):
            return bits(a) == bits(b) or math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-6)
        return bool(a == b)

    return len(got) == len(wanted) and all(
        len(a) == len(b) and all(map(same, a, b)) for a, b in zip(got, wanted, strict=True)
    )


@examples(80)
@given(any_panes, key_lists, call_lists, rows(whole_floats), blocks, st.data())
def test_it_gives_what_the_definition_says(
    panes: Panes,
    keys: list[str],
    calls: list[AggregateCall],
    stream: list[Row],
    block: int,
    data: st.DataObject,
) -> None:
    windows = engine(panes, keys, calls, block)
    got, points = run(stepper(windows), stream, draw_cuts(data, stream))
    wanted = naive(panes, keys, calls, stream)
    assert close(got, wanted)
    exact = [4 + len(keys) + i for i, c in enumerate(calls) if c.function in EXACT]
    columns = [0, 1, 2, 3, *exact]
    assert [[r[i] for i in columns] for r in got] == [[r[i] for i in columns] for r in wanted]
    assert points[-1].watermark == END_WATERMARK
    assert points[-1].needless == len(stream)
    assert len(windows._keys) == 0


@examples(80)
@given(any_panes, key_lists, call_lists, rows(floats), blocks, st.data())
def test_neither_cuts_nor_restarts_change_a_bit(
    panes: Panes,
    keys: list[str],
    calls: list[AggregateCall],
    stream: list[Row],
    block: int,
    data: st.DataObject,
) -> None:
    first = data.draw(st.integers(1, max(1, len(stream))))  # it may join a stream that runs
    windows = engine(panes, keys, calls, block)
    outputs, points = run(stepper(windows), stream, draw_cuts(data, stream, first), first - 1)

    again, _ = run(
        stepper(engine(panes, keys, calls, block)),
        stream,
        draw_cuts(data, stream, first),
        first - 1,
    )
    assert bits(again) == bits(outputs)

    point = data.draw(st.sampled_from(points))
    standby = engine(panes, keys, calls, block)
    standby.open(point.instant)
    replay = draw_cuts(data, stream, point.needless + 1)
    rest, _ = run(stepper(standby), stream, replay, point.needless)
    assert bits(rest) == bits(outputs[point.outputs :])


@pytest.mark.parametrize("seed", range(40))
def test_floats_of_all_sizes_stay_the_same_to_the_bit(seed: int) -> None:
    """Any other order or association of these sums shows."""
    draw = random.Random(seed)
    count = 80
    xs = [draw.gauss(0, 1) * 10.0 ** draw.randrange(-9, 9) for _ in range(count)]
    ts = [place + draw.randrange(6) for place in range(count)]
    stream = tuples(*ts, x=xs, k=[draw.choice("ab") for _ in range(count)])
    width, slide = draw.randrange(4, 30), draw.randrange(1, 8)
    panes: Panes = TimePanes(width_us=width, slide_us=slide)
    if seed % 4 == 0:
        panes = RowPanes(width=width, slide=slide)
    calls = [call("SUM", "x"), call("AVG", "x"), call("VAR_POP", "x")]

    def drawn_cuts(first: int = 1) -> list[Cut]:
        return cuts(stream, draw.sample(range(count), 6), lambda: draw.choice([0, 5]), first)

    outputs, points = run(stepper(engine(panes, ["k"], calls, 4)), stream, drawn_cuts())
    again, _ = run(stepper(engine(panes, ["k"], calls, 4)), stream, drawn_cuts())
    assert bits(again) == bits(outputs)
    for point in points:
        standby = engine(panes, ["k"], calls, 4)
        standby.open(point.instant)
        rest, _ = run(stepper(standby), stream, drawn_cuts(point.needless + 1), point.needless)
        assert bits(rest) == bits(outputs[point.outputs :])


@examples(30)
@given(time_panes, rows(whole_floats), st.data())
def test_what_is_said_to_come_is_the_next_window_that_can(
    panes: TimePanes, stream: list[Row], data: st.DataObject
) -> None:
    steps = draw_cuts(data, stream)
    _, points = run(stepper(engine(panes, [], [call("COUNT")], 4)), stream, steps)
    for cut, point in zip(steps, points, strict=True):
        if cut.watermark in (START_WATERMARK, END_WATERMARK):
            assert point.watermark == point.instant == cut.watermark
            continue
        last, following = point.instant, point.watermark
        assert last <= cut.watermark < following
        assert following - last == panes.slide_us
        assert (following - panes.width_us) % panes.slide_us == 0


def tuples(*ts: int, **columns: Any) -> list[Row]:
    empty: Row = dict.fromkeys(["k", "j", "n", "x", "s", "d"])
    return [
        empty | {"_ts": t, "_born": t} | {name: values[i] for name, values in columns.items()}
        for i, t in enumerate(ts)
    ]


def test_a_gap_of_years_costs_nothing() -> None:
    stream = tuples(0, 10**15, n=[1, 2])
    windows = engine(TimePanes(width_us=10, slide_us=3), [], [call("SUM", "n")], 4)
    got, _ = run(stepper(windows), stream, [Cut(2, 10**15 + 10), Cut(2, END_WATERMARK)])
    assert [row[-1] for row in got] == [1, 1, 1, 1, 2, 2, 2]


def test_a_tuple_between_windows_is_let_go_at_once() -> None:
    windows = engine(TimePanes(width_us=2, slide_us=10), [], [call("COUNT")], 4)
    stream = tuples(5, 6, 7, 21, 22)
    _, points = run(stepper(windows), stream, [Cut(3, START_WATERMARK), Cut(5, START_WATERMARK)])
    assert [point.needless for point in points] == [3, 3]


def test_windows_of_rows_begin_at_absolute_positions() -> None:
    stream = tuples(*range(10), n=list(range(1, 11)))
    windows = engine(RowPanes(width=4, slide=3), [], [call("SUM", "n")], 4)
    got, points = run(stepper(windows), stream, [Cut(5, 5), Cut(8, 8), Cut(10, 10)], after=1)
    assert [(row[2], row[3], row[-1]) for row in got] == [(3, 7, 22), (6, 10, 34)]
    assert [point.needless for point in points] == [3, 6, 9]
    assert [point.watermark for point in points] == [5, 8, 10]


def test_a_sum_that_exceeds_bigint_is_an_error() -> None:
    big = 2**63 - 1
    stream = tuples(1, 2, n=[big, 1])
    windows = engine(TimePanes(width_us=2, slide_us=1), [], [call("SUM", "n")], 4)
    with pytest.raises(TaskError) as caught:
        run(stepper(windows), stream, [Cut(2, END_WATERMARK)])
    assert "sum of S.n exceeds BIGINT" in str(caught.value)


def test_keys_that_are_gone_leave_nothing_behind() -> None:
    stream = tuples(*range(1000), k=[str(i) for i in range(1000)])
    windows = engine(TimePanes(width_us=10, slide_us=5), ["k"], [call("COUNT")], 16)
    run(stepper(windows), stream, [Cut(i, i - 1) for i in range(0, 1001, 20)])
    assert len(windows._keys._keys) < 100


def test_distinct_sums_are_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        engine(TimePanes(width_us=1, slide_us=1), [], [call("SUM", "n", distinct=True)], 4)
    assert "SUM(DISTINCT …) is not supported" in str(caught.value)


@pytest.mark.parametrize(
    "panes", [TimePanes(width_us=50, slide_us=20), RowPanes(width=90, slide=9)]
)
def test_many_keys_that_come_and_go(panes: Panes) -> None:
    draw = random.Random(3)
    count = 600
    ts = [place + draw.randrange(9) for place in range(count)]
    keys = [str(place // 20 + draw.randrange(30)) for place in range(count)]
    stream = tuples(*ts, k=keys, n=[draw.randrange(9) for _ in range(count)])
    calls = [call("SUM", "n"), call("COUNT", "n", distinct=True)]
    steps = cuts(stream, range(0, count, 37), lambda: 0)
    got, points = run(stepper(engine(panes, ["k"], calls, 16)), stream, steps)
    assert got == naive(panes, ["k"], calls, stream)
    point = points[8]
    standby = engine(panes, ["k"], calls, 16)
    standby.open(point.instant)
    rest, _ = run(
        stepper(standby), stream, cuts(stream, [point.needless + 150], lambda: 0), point.needless
    )
    assert rest == got[point.outputs :]
