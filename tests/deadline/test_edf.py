"""The EDF queue: earliest absolute deadline first, then first come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.deadline.urgency import NO_DEADLINE, EdfQueue

deadlines = st.one_of(st.none(), st.integers(0, 5), st.just(NO_DEADLINE - 1))
pushes = st.tuples(st.integers(0, 5), deadlines)


class Item:
    """Cannot be compared, as a task cannot."""

    def __init__(self, key: tuple[int, int, int]) -> None:
        self.key = key


@given(st.lists(st.one_of(pushes, st.none()), max_size=60))
def test_it_pops_what_is_most_urgent_of_all_that_waits(script: list[tuple | None]) -> None:
    """Pushes and pops (None) in any mixture, against a plain list."""
    queue: EdfQueue[Item] = EdfQueue()
    waiting: list[tuple[int, int, int]] = []
    for number, push in enumerate(script):
        if push is not None:
            arrival, deadline = push
            key = (NO_DEADLINE if deadline is None else deadline, arrival, number)
            waiting.append(key)
            if deadline is None:
                queue.push(Item(key), arrival=arrival)
            else:
                queue.push(Item(key), arrival=arrival, deadline=deadline)
        elif waiting:
            assert queue.pop().key == min(waiting)
            waiting.remove(min(waiting))
        assert len(queue) == len(waiting)
    assert [queue.pop().key for _ in range(len(queue))] == sorted(waiting)


def test_an_empty_queue_has_nothing_to_pop() -> None:
    with pytest.raises(IndexError):
        EdfQueue().pop()
