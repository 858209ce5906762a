"""Cutting a batch: the parts are the whole, and no part promises too much."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.stream.rows import Rows, batch, rows

times = st.lists(st.tuples(st.integers(0, 99), st.integers(1, 9)), max_size=8)


def test_a_batch_knows_its_last_position() -> None:
    assert batch(11, rows(1, 2, 3)).last == 13
    assert batch(11, rows()).last == 10


@given(times, st.integers(1, 20), st.integers(0, 40))
def test_what_lies_after_a_position(items: list[tuple[int, int]], first: int, after: int) -> None:
    whole = batch(first, Rows(tuple(items)), 7, epoch=3)
    part = whole.after(after)
    numbered = list(enumerate(items, first))
    assert list(enumerate(part.data.items, part.first)) == [
        (position, item) for position, item in numbered if position > after
    ]
    assert part.last == whole.last
    assert (part.stream, part.watermark, part.epoch) == ("S", 7, 3)


@given(times.filter(bool), st.integers(1, 20), st.data())
def test_head_and_rest_are_the_whole(
    items: list[tuple[int, int]], first: int, data: st.DataObject
) -> None:
    whole = batch(first, Rows(tuple(items)), 7)
    size = data.draw(st.integers(0, whole.rows))
    head, rest = whole.head(size, 2), whole.after(first + size - 1)
    assert head.data.items + rest.data.items == whole.data.items
    assert (head.first, head.last) == (first, first + size - 1)
    assert (rest.first, rest.last) == (first + size, whole.last)
    assert (head.watermark, rest.watermark) == (2, 7)
    assert head.data.nbytes + rest.data.nbytes == whole.data.nbytes
