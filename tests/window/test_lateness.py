"""What is late follows from the definition, one tuple after the other, however they are cut."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from anabranch.stream.restart import END_WATERMARK, START_WATERMARK
from anabranch.window.lateness import late, watermark

times_of_a_stream = st.lists(
    st.integers(-50, 50)
    | st.integers(START_WATERMARK, START_WATERMARK + 50)
    | st.integers(END_WATERMARK - 50, END_WATERMARK),
    max_size=30,
)
latenesses = st.integers(0, 60)


@given(times_of_a_stream, latenesses, st.lists(st.integers(0, 30)))
def test_a_tuple_is_late_if_it_lies_below_the_watermark_before_it(
    times: list[int], lateness_us: int, cuts: list[int]
) -> None:
    expected, newest = [], START_WATERMARK
    for one in times:  # Python's integers know no end
        expected.append(one < newest - lateness_us)
        newest = max(newest, one)

    ends = sorted({min(cut, len(times)) for cut in cuts} | {0, len(times)})
    found, newest = [], START_WATERMARK
    for begin, end in pairwise(ends):
        piece = np.array(times[begin:end], dtype=np.int64)
        below = watermark(newest, lateness_us)
        mask = late(piece, newest, lateness_us)
        assert mask is None or mask.any()
        found += [False] * len(piece) if mask is None else mask.tolist()
        newest = max(newest, *times[begin:end])
        if newest < END_WATERMARK:
            assert found[begin:end][0] == (times[begin] < below)
            assert min(newest - lateness_us, END_WATERMARK - 1) <= watermark(newest, lateness_us)
    assert found == expected


@given(st.integers(START_WATERMARK, END_WATERMARK), latenesses)
def test_a_watermark_is_the_least_time_that_is_not_late(newest: int, lateness_us: int) -> None:
    mark = watermark(newest, lateness_us)
    assert START_WATERMARK <= mark < END_WATERMARK
    at = np.array([mark], dtype=np.int64)
    assert late(at, newest, lateness_us) is None or mark == END_WATERMARK - 1
    if mark > START_WATERMARK:
        assert late(at - 1, newest, lateness_us) is not None
