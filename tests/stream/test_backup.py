"""The outlet's part in standby: batches of unreleased tuples, and who may speak for a consumer."""

from __future__ import annotations

import pytest

from anabranch.errors import SiteError, Superseded
from anabranch.stream.batch import START_WATERMARK
from anabranch.stream.outlet import SHIPMENT_ROWS, Due, Outlet
from anabranch.stream.restart import RestartPoint
from tests.stream.rows import Rows, rows


def an_outlet(batch: int, upto: int = 0) -> Outlet[Rows]:
    """With a consumer "c", its standby of epoch 1, and tuples 1…`upto`, three at a time."""
    outlet: Outlet[Rows] = Outlet("S")
    outlet.attach("c")
    outlet.back_up("c", 1, batch, 0)
    grow(outlet, upto)
    return outlet


def grow(outlet: Outlet[Rows], upto: int) -> None:
    while outlet.last < upto:
        first = outlet.last + 1
        last = min(first + 2, upto)
        outlet.append(rows(*range(first, last + 1)), watermark=last)


def shipped(outlet: Outlet[Rows]) -> list[int] | None:
    """The tuples that are due, by their event times, which are their positions."""
    due = outlet.due("c", 1)
    if due is None:
        return None
    outlet.shipped("c", 1, due.last)
    return list(range(due.after + 1, due.last + 1))


def release(outlet: Outlet[Rows], position: int, own: int = 0) -> None:
    outlet.level1("c", position, RestartPoint((position,), position), own)


def test_nothing_is_shipped_before_there_is_a_batch_of_it() -> None:
    outlet = an_outlet(batch=4, upto=3)
    assert shipped(outlet) is None
    grow(outlet, 6)
    assert shipped(outlet) == [1, 2, 3, 4]
    assert shipped(outlet) is None
    grow(outlet, 14)
    assert shipped(outlet) == [5, 6, 7, 8, 9, 10, 11, 12]


def test_what_is_due_is_not_due_again_only_once_it_is_being_sent() -> None:
    outlet = an_outlet(batch=4, upto=6)
    assert outlet.due("c", 1) == outlet.due("c", 1) == Due(0, 4, None)
    outlet.shipped("c", 1, 4)
    assert outlet.due("c", 1) is None
    with pytest.raises(Superseded):
        outlet.shipped("c", 2, 6)


def test_a_long_window_is_shipped_piece_by_piece_and_a_large_batch_whole() -> None:
    outlet = an_outlet(batch=30, upto=0)
    outlet.append(rows(*range(1, SHIPMENT_ROWS + 100)), 1)
    most = SHIPMENT_ROWS // 30 * 30
    assert [shipped(outlet), shipped(outlet)] == [
        list(range(1, most + 1)),
        list(range(most + 1, outlet.last // 30 * 30 + 1)),
    ]
    large = an_outlet(batch=SHIPMENT_ROWS + 1)
    large.append(rows(*range(1, SHIPMENT_ROWS + 100)), 1)
    assert shipped(large) == list(range(1, SHIPMENT_ROWS + 2))


def test_what_was_released_is_never_shipped() -> None:
    outlet = an_outlet(batch=4, upto=3)
    release(outlet, 2)
    grow(outlet, 5)
    assert shipped(outlet) is None  # 3, 4, 5
    grow(outlet, 6)
    assert shipped(outlet) == [3, 4, 5, 6]


def test_what_was_shipped_is_kept_until_it_is_released() -> None:
    outlet = an_outlet(batch=1, upto=6)
    assert shipped(outlet) == [1, 2, 3, 4, 5, 6]
    assert outlet.read(0) is not None
    release(outlet, 6)
    assert outlet.kept_bytes == 0


def test_a_shipment_brings_the_point_behind_the_gap_it_leaves() -> None:
    outlet = an_outlet(batch=2, upto=2)
    shipped(outlet)
    grow(outlet, 9)
    release(outlet, 7)
    assert outlet.due("c", 1) == Due(7, 9, RestartPoint((7,), 7))


def test_a_watermark_is_not_told_before_the_tuples_it_holds_behind() -> None:
    outlet = an_outlet(batch=4, upto=6)
    assert shipped(outlet) == [1, 2, 3, 4]
    assert outlet.heartbeat("c") == (START_WATERMARK, None)
    grow(outlet, 8)
    assert shipped(outlet) == [5, 6, 7, 8]
    assert outlet.heartbeat("c") == (8, None)


def test_a_producer_that_is_behind_its_consumers_ships_when_it_has_caught_up() -> None:
    """It has taken over, and makes again what they have."""
    outlet: Outlet[Rows] = Outlet("S")
    outlet.attach("c", after=5)
    outlet.back_up("c", 1, 1, 5)
    grow(outlet, 3)
    assert shipped(outlet) is None
    grow(outlet, 7)
    assert shipped(outlet) == [6, 7]


def test_one_standby_replaces_another() -> None:
    outlet = an_outlet(batch=1, upto=3)
    outlet.back_up("c", 2, 1, 0)
    with pytest.raises(Superseded, match="standby of epoch 1 was replaced"):
        outlet.due("c", 1)
    with pytest.raises(Superseded):
        outlet.back_up("c", 1, 1, 0)
    with pytest.raises(SiteError, match="keeps nothing for stranger"):
        outlet.back_up("stranger", 3, 1, 0)


def test_whoever_was_replaced_is_refused() -> None:
    outlet = an_outlet(batch=1, upto=6)
    release(outlet, 2)
    assert outlet.fence("c", 1) is outlet.consumers["c"]
    for late in (lambda: outlet.level0("c", 5, 0), lambda: release(outlet, 5)):
        with pytest.raises(Superseded, match="of epoch 0 was replaced by that of epoch 1"):
            late()
    assert outlet.released == 2
    release(outlet, 5, own=1)
    assert outlet.released == 5
    with pytest.raises(Superseded):
        outlet.fence("c", 0)
    with pytest.raises(Superseded):
        outlet.due("c", 1)  # it is no standby any more


def test_a_standby_keeps_nothing_that_its_primarys_consumers_do_not_need() -> None:
    outlet: Outlet[Rows] = Outlet("S", epoch=1)
    outlet.attach("c", after=0)
    release(outlet, 5)
    grow(outlet, 3)
    assert (outlet.kept_bytes, outlet.last, outlet.released) == (0, 3, 5)
    grow(outlet, 9)
    batch = outlet.read(5)
    assert batch is not None
    assert batch.data == rows(6)
