"""An outlet numbers, keeps and releases."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.errors import Gap, StaleEpoch
from anabranch.stream.batch import END_WATERMARK
from anabranch.stream.outlet import Outlet
from anabranch.stream.restart import FOREVER, RestartPoint
from tests.stream.rows import Rows, rows


def at(position: int) -> RestartPoint:
    return RestartPoint((position,), position)


def test_positions_are_dense_from_the_start_point() -> None:
    outlet: Outlet[Rows] = Outlet("S", start=10)
    outlet.attach("a")
    assert outlet.append(rows(1, 2), 1).first == 11
    assert outlet.append(rows(), 2).rows == 0
    assert outlet.append(rows(3), 3).last == outlet.last == 13


def test_without_consumers_nothing_is_kept() -> None:
    outlet: Outlet[Rows] = Outlet("S")
    outlet.append(rows(1, 2), 1)
    assert (outlet.released, outlet.kept_bytes) == (2, 0)
    assert outlet.attach("late") == 2
    assert outlet.read(2) is None


def test_a_consumer_is_attached_once() -> None:
    outlet: Outlet[Rows] = Outlet("S")
    outlet.attach("a")
    outlet.append(rows(1, 2, 3), 1)
    outlet.level0("a", 2, epoch=0)
    assert outlet.attach("a") == 2


def test_one_can_always_read_on_from_where_attach_says() -> None:
    """A Level-1 ack alone moves what is released; Level-0 acks come at intervals."""
    outlet: Outlet[Rows] = Outlet("S")
    outlet.attach("a")
    outlet.append(rows(1, 2, 3), 1)
    outlet.level1("a", 2, at(2))
    outlet.read(outlet.attach("a"))
    assert outlet.acknowledged() == 2


def test_who_comes_to_one_that_has_taken_over_begins_behind_what_the_one_before_had_given() -> None:
    """It has not come as far yet: what all consumers had is not kept again."""
    outlet: Outlet[Rows] = Outlet("S")
    outlet.attach("a")
    outlet.level1("a", 3, at(3))
    assert outlet.attach("late") == 3
    outlet.append(rows(1, 2, 3), 3)
    outlet.append(rows(4), 4)
    batch = outlet.read(3)
    assert batch
    assert (batch.first, batch.last) == (4, 4)


def test_the_slowest_consumer_decides_what_is_released() -> None:
    outlet: Outlet[Rows] = Outlet("S")
    outlet.attach("a")
    outlet.attach("b")
    outlet.append(rows(1, 2), 1)
    outlet.append(rows(3, 4), 3)
    assert outlet.level1("a", 4, at(4)) == 0
    assert outlet.level1("b", 3, at(3)) == 3
    assert outlet.read(3).first == 4  # type: ignore[union-attr]
    with pytest.raises(Gap, match="3 was asked for, 3 released"):
        outlet.read(2)
    outlet.detach("b")
    assert (outlet.released, outlet.kept_bytes) == (4, 0)


def test_acks_overtaken_by_newer_ones_change_nothing() -> None:
    outlet: Outlet[Rows] = Outlet("S")
    outlet.attach("a")
    outlet.append(rows(1, 2, 3), 1)
    outlet.level0("a", 3, epoch=0)
    outlet.level1("a", 2, at(2))
    outlet.level0("a", 1, epoch=0)
    assert outlet.consumers["a"].received == 3
    assert outlet.level1("a", 1, at(1)) == 2
    assert outlet.consumers["a"].restart == at(2)


def test_the_newest_restart_point_is_remembered_when_only_other_inputs_moved() -> None:
    """The outlet remembers (p, q). Of one task's points with the same position in this
    stream, the one with the greatest output is the newest, in whatever order they arrive."""
    outlet: Outlet[Rows] = Outlet("S")
    outlet.attach("join")
    outlet.append(rows(1, 2, 3), 1)
    older, newer = RestartPoint((2, 5), 7), RestartPoint((2, 9), 8)
    outlet.level1("join", 2, newer)
    outlet.level1("join", 2, older)
    assert outlet.consumers["join"].restart == newer


def test_an_ack_of_a_later_epoch_tells_an_old_producer_that_it_is_old() -> None:
    """Takeover: a slow old primary finds out and stops itself."""
    outlet: Outlet[Rows] = Outlet("S", epoch=1)
    outlet.attach("a")
    with pytest.raises(StaleEpoch, match="consumer a is at epoch 2, we at 1"):
        outlet.level0("a", 0, epoch=2)
    outlet.level0("a", 0, epoch=1)
    outlet.level0("a", 0, epoch=0)


def test_acks_of_strangers_release_nothing() -> None:
    outlet: Outlet[Rows] = Outlet("S")
    outlet.attach("a")
    outlet.append(rows(1, 2), 1)
    outlet.level0("stranger", 2, epoch=0)
    assert outlet.level1("stranger", 2, at(2)) == 0
    assert outlet.acknowledged() == 0


def test_nothing_follows_the_end() -> None:
    outlet: Outlet[Rows] = Outlet("S")
    assert outlet.advance(END_WATERMARK)
    assert outlet.ended
    assert not outlet.advance(5)
    with pytest.raises(ValueError, match="S has ended"):
        outlet.append(rows(1), 6)


def test_what_consumers_told_another_outlet_of_the_stream_is_learnt_and_passed_on() -> None:
    outlet: Outlet[Rows] = Outlet("S")
    outlet.attach("a")
    outlet.attach("quiet")
    outlet.append(rows(*range(9)), 1)
    outlet.level1("a", 2, at(2))
    assert outlet.readers() == {"a": at(2)}
    outlet.learn({"a": at(5), "behind it": at(7)})
    learnt = outlet.readers()
    assert learnt == {"a": replace(at(5), readers={"behind it": at(7)})}
    assert outlet.consumers["a"].released == 2  # what to release its own acks say
    outlet.level1("a", 3, at(3))  # on its way since before
    assert outlet.readers() == learnt
    outlet.level1("a", 6, at(6))
    assert (outlet.readers(), outlet.consumers["a"].released) == ({"a": at(6)}, 6)
    outlet.detach("a")
    assert outlet.readers() == {}


def test_one_that_ended_early_is_remembered_and_holds_up_nobody() -> None:
    outlet: Outlet[Rows] = Outlet("S")
    outlet.attach("a")
    outlet.attach("b")
    outlet.append(rows(1, 2), 1)
    ended = RestartPoint((FOREVER,), 1)
    outlet.level1("a", FOREVER, ended)
    outlet.sent("b", 2)
    outlet.level1("b", 1, at(1))
    assert (outlet.released, outlet.unsent_bytes(), outlet.wanted) == (1, 0, True)
    outlet.level1("b", FOREVER, ended)
    outlet.append(rows(3), 3)
    assert (outlet.released, outlet.kept_bytes, outlet.wanted) == (3, 0, False)
    assert outlet.readers() == {"a": ended, "b": ended}


def test_one_that_has_all_from_another_producer_holds_up_nobody() -> None:
    """A task heard the stream's end from the producer before us, so that it never follows us, and
    its own readers keep it from releasing anything: were we to wait until we have sent it all, the
    end would never reach those who did not hear of it."""
    outlet: Outlet[Rows] = Outlet("S", epoch=1)
    outlet.attach("heard", after=0)
    outlet.attach("follows", after=0)
    outlet.append(rows(1, 2, 3), 1)
    outlet.sent("follows", 3)
    assert outlet.unsent_bytes() > 0
    outlet.level0("heard", 3, 1)
    assert (outlet.unsent_bytes(), outlet.released) == (0, 0)
