"""A standby begins anew where a shipment leaves a gap, on all inputs, and never needlessly."""

from __future__ import annotations

import pytest

from anabranch.errors import Gap, StaleEpoch
from anabranch.standby.secondary import Action, Claim, Feed, Restart, Secondary
from anabranch.stream.batch import START_WATERMARK, Batch
from anabranch.stream.restart import RestartPoint
from tests.stream.rows import Rows, rows

P = RestartPoint


def batch(
    first: int, last: int, point: P | None = None, epoch: int = 0, watermark: int = START_WATERMARK
) -> Batch[Rows]:
    return Batch("S", first, watermark, epoch, rows(*range(first, last + 1)), point=point)


def told(actions: list[Action[Rows]]) -> list[object]:
    """Actions as what one would say of them."""
    said: list[object] = []
    for action in actions:
        if isinstance(action, Feed):
            said.append((action.index, values((action.batch,))))
        else:
            said.append((action.point, [values(kept) for kept in action.kept]))
    return said


def values(batches: tuple[Batch[Rows], ...]) -> list[int]:
    return [time for one in batches for time, _ in one.data.items]


def test_shipments_that_join_up_are_fed() -> None:
    standby: Secondary[Rows] = Secondary(P((0,), 0))
    assert told(standby.offer(0, batch(1, 3))) == [(0, [1, 2, 3])]
    assert told(standby.offer(0, batch(2, 5))) == [(0, [4, 5])]
    assert standby.received == (5,)


def test_a_gap_makes_it_begin_at_the_point_that_came_with_it() -> None:
    standby: Secondary[Rows] = Secondary(P((0,), 0))
    standby.offer(0, batch(1, 3))
    actions = standby.offer(0, batch(8, 9, P((7,), 70)))
    assert told(actions) == [(P((7,), 70), [[8, 9]])]
    assert told(standby.offer(0, batch(10, 10))) == [(0, [10])]


def test_a_point_may_lie_before_a_gap_only_if_something_is_wrong() -> None:
    standby: Secondary[Rows] = Secondary(P((0,), 0))
    with pytest.raises(Gap, match="S: 6 to 7 were let go of"):
        standby.offer(0, batch(8, 9, P((5,), 5)))


def test_windows_need_what_was_shipped_before_the_gap() -> None:
    """The point lies behind open windows: what is kept behind it is replayed."""
    standby: Secondary[Rows] = Secondary(P((0, 0), 0))
    standby.offer(0, batch(1, 6))
    standby.offer(1, batch(1, 4))
    actions = standby.offer(1, batch(8, 9, P((3, 7), 5, 50)))
    assert told(actions) == [(P((3, 7), 5, 50), [[4, 5, 6], [8, 9]])]
    assert standby.received == (6, 9)


def test_an_input_that_lags_behind_the_point_is_expected_behind_it() -> None:
    standby: Secondary[Rows] = Secondary(P((0, 0), 0))
    standby.offer(0, batch(1, 2))
    actions = standby.offer(1, batch(8, 9, P((5, 7), 5)))
    assert told(actions) == [(P((5, 7), 5), [[], [8, 9]])]
    assert standby.received == (5, 9)
    assert told(standby.offer(0, batch(4, 7))) == [(0, [6, 7])]


def test_a_newer_point_alone_is_no_reason_to_begin_anew() -> None:
    standby: Secondary[Rows] = Secondary(P((0,), 0))
    standby.offer(0, batch(1, 5))
    assert told(standby.offer(0, batch(6, 6, P((4,), 4)))) == [(0, [6])]
    assert (standby.kept, standby.point) == (2, P((4,), 4))
    standby.offer(0, batch(7, 7, P((2,), 2)))  # overtaken on its way
    assert standby.point == P((4,), 4)


def test_the_watermark_survives_a_new_beginning() -> None:
    standby: Secondary[Rows] = Secondary(P((0, 0), 0))
    standby.offer(0, batch(1, 3, watermark=30))
    standby.offer(0, batch(4, 3, watermark=99))  # a heartbeat
    (action,) = standby.offer(1, batch(8, 9, P((1, 7), 5)))
    assert isinstance(action, Restart)
    assert [(one.first, one.rows, one.watermark) for one in action.kept[0]] == [
        (2, 2, 30),
        (4, 0, 99),
    ]


def test_what_a_replaced_producer_still_ships_is_refused() -> None:
    standby: Secondary[Rows] = Secondary(P((0,), 0))
    standby.offer(0, batch(1, 3, epoch=2))
    with pytest.raises(StaleEpoch):
        standby.offer(0, batch(4, 5, epoch=1))
    assert standby.received == (3,)


def test_it_takes_over_where_it_is_if_nothing_is_lacking() -> None:
    standby: Secondary[Rows] = Secondary(P((0, 0), 0))
    standby.offer(0, batch(1, 5))
    assert standby.take_over([Claim(5, P((5, 0), 3)), Claim(0, None)]) == []
    assert standby.received == (5, 0)


def test_it_takes_over_at_the_newest_point_if_something_is_lacking() -> None:
    """What upstream knows of the dead primary reached its inputs at different times."""
    standby: Secondary[Rows] = Secondary(P((0, 0), 0))
    standby.offer(0, batch(1, 6))
    standby.offer(1, batch(1, 2))
    older, newer = P((3, 4), 5), P((5, 4), 8)
    actions = standby.take_over([Claim(5, newer), Claim(4, older)])
    assert told(actions) == [(newer, [[6], []])]
    assert standby.received == (6, 4)


def test_upstream_backup_takes_over_with_nothing() -> None:
    standby: Secondary[Rows] = Secondary(P((0,), 0))
    assert told(standby.take_over([Claim(70, P((70,), 30))])) == [(P((70,), 30), [[]])]
    with pytest.raises(Gap):
        Secondary[Rows](P((0,), 0)).take_over([Claim(70, None)])


def test_an_idle_task_skips_what_was_released_before_it_took_it() -> None:
    standby: Secondary[Rows] = Secondary(P((0,), 0))
    standby.offer(0, batch(1, 6), (0,))
    actions = standby.offer(0, batch(7, 9, P((5,), 50)), (0,))
    assert told(actions) == [(P((5,), 50), [[6, 7, 8, 9]])]
    assert told(standby.offer(0, batch(10, 10), (5,))) == [(0, [10])]


def test_what_a_task_has_taken_beyond_the_point_is_not_thrown_away() -> None:
    standby: Secondary[Rows] = Secondary(P((0, 0), 0))
    standby.offer(0, batch(1, 6))
    assert told(standby.offer(0, batch(7, 7, P((5, 2), 50)), (6, 0))) == [(0, [7])]
    assert told(standby.offer(0, batch(8, 8), (5, 2))) == [(0, [8])]  # nothing to be won


def test_a_task_that_runs_is_left_alone() -> None:
    standby: Secondary[Rows] = Secondary(P((0,), 0))
    assert told(standby.offer(0, batch(1, 6, P((5,), 50)), None)) == [(0, [1, 2, 3, 4, 5, 6])]


def test_a_point_that_was_asked_for_counts_like_one_that_was_shipped() -> None:
    standby: Secondary[Rows] = Secondary(P((0, 0), 0))
    standby.offer(0, batch(1, 6))
    assert standby.learn(P((5, 2), 50), None) == []
    assert told(standby.learn(P((5, 2), 50), (0, 0))) == [(P((5, 2), 50), [[6], []])]
    assert standby.received == (6, 2)


def test_a_take_over_skips_what_was_released_too() -> None:
    standby: Secondary[Rows] = Secondary(P((0,), 0))
    standby.offer(0, batch(1, 6))
    actions = standby.take_over([Claim(4, P((4,), 40))], (0,))
    assert told(actions) == [(P((4,), 40), [[5, 6]])]
