"""An inlet takes each tuple once, in order, and refuses what it must not take."""

from __future__ import annotations

import pytest

from anabranch.errors import Gap, StaleEpoch
from anabranch.stream.batch import END_WATERMARK, START_WATERMARK
from anabranch.stream.inlet import Inlet
from tests.stream.rows import Rows, batch, rows


def times(taken: object) -> list[int]:
    return [time for one in taken for time, _ in one.data.items]  # type: ignore[attr-defined]


def test_an_overlapping_batch_adds_what_is_new() -> None:
    inlet: Inlet[Rows] = Inlet("S")
    assert inlet.offer(batch(1, rows(1, 2, 3))) == 3
    assert inlet.offer(batch(2, rows(2, 3, 4))) == 1
    assert times(inlet.take(9)) == [1, 2, 3, 4]


def test_a_gap_is_refused_and_changes_nothing() -> None:
    inlet: Inlet[Rows] = Inlet("S", position=4, epoch=2)
    with pytest.raises(Gap, match="batch starts at 6, expected 5"):
        inlet.offer(batch(6, rows(6), 9, epoch=3))
    assert (inlet.received, inlet.epoch, inlet.progress) == (4, 2, False)
    inlet.offer(batch(5, rows(5), epoch=2))
    assert inlet.received == 5


def test_a_heartbeat_that_skips_tuples_is_a_gap_too() -> None:
    inlet: Inlet[Rows] = Inlet("S")
    with pytest.raises(Gap):
        inlet.offer(batch(2, rows(), END_WATERMARK))
    assert not inlet.drained


def test_an_earlier_epoch_is_refused_even_with_new_tuples() -> None:
    """Takeover: receivers reject lower epochs on data."""
    inlet: Inlet[Rows] = Inlet("S")
    inlet.offer(batch(1, rows(1), epoch=2))
    for late in (batch(2, rows(2), 9, epoch=1), batch(2, rows(), END_WATERMARK, epoch=1)):
        with pytest.raises(StaleEpoch, match="batch of epoch 1 after epoch 2"):
            inlet.offer(late)
    assert inlet.received == 1
    assert times(inlet.take(9)) == [1]
    assert inlet.watermark == START_WATERMARK


def test_a_later_epoch_continues_where_the_earlier_one_stopped() -> None:
    """Takeover: receivers drop positions they have."""
    inlet: Inlet[Rows] = Inlet("S")
    inlet.offer(batch(1, rows(1, 2), epoch=0))
    assert inlet.offer(batch(1, rows(1, 2, 3), epoch=1)) == 1
    assert inlet.epoch == 1
    assert times(inlet.take(9)) == [1, 2, 3]


def test_the_watermark_waits_for_the_tuples_before_it() -> None:
    """No later tuple has `_ts` < w, seen from the one who takes."""
    inlet: Inlet[Rows] = Inlet("S")
    inlet.offer(batch(1, rows(1, 2, 3), 3))
    inlet.offer(batch(4, rows(5, 6), 5))
    inlet.offer(batch(6, rows(), 8))
    assert (times(inlet.take(2)), inlet.watermark) == ([1, 2], START_WATERMARK)
    assert (times(inlet.take(1)), inlet.watermark) == ([3], 3)
    assert (times(inlet.take(1)), inlet.watermark) == ([5], 3)
    assert (times(inlet.take(1)), inlet.watermark) == ([6], 8)
    assert not inlet.progress


def test_a_stream_is_drained_only_once_its_end_was_taken() -> None:
    """Otherwise a task that asks between two takes would stop without passing the end on."""
    inlet: Inlet[Rows] = Inlet("S")
    inlet.offer(batch(1, rows(1)))
    inlet.take(9)
    inlet.offer(batch(2, rows(), END_WATERMARK))
    assert inlet.progress
    assert not inlet.drained
    assert times(inlet.take(9)) == []
    assert inlet.drained
    assert not inlet.progress
