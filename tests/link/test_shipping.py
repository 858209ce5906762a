"""A standby's view of an outlet, through a real gate."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from anabranch.errors import AnabranchError, SiteError, Superseded
from anabranch.link.messages import Ship
from anabranch.link.outlet import LiveOutlet
from anabranch.link.peer import Peer
from anabranch.link.wire import unpacker
from anabranch.runtime.pipe import Pipe
from anabranch.stream.batch import Batch
from anabranch.stream.restart import RestartPoint
from tests.link.support import (
    LOOP,
    SCHEMA,
    TOKEN,
    a_gate,
    an_outlet,
    follow,
    numbers,
    ship,
    values,
)


def full(batches: Iterator[Batch[pa.RecordBatch]]) -> Batch[pa.RecordBatch]:
    """The next one with tuples."""
    return next(batch for batch in batches if batch.rows)


@pytest.mark.parametrize("codec", [None, "zlib", "lz4", "zstd"])
def test_a_standby_gets_batches_with_the_restart_point(codec: str | None) -> None:
    outlet = an_outlet()
    outlet.attach("c")
    outlet.append([numbers(1, 1000)], 1000)
    unpack: Any = unpacker(SCHEMA, codec) if codec else lambda batch: batch
    with a_gate(outlet) as gate:
        stream = Peer("room1", gate.address, TOKEN).open(Ship("S", "c", 0, 1, 400, codec))
        shipped = map(unpack, stream)
        assert values([full(shipped)]) == list(range(1, 801))
        outlet.level1("c", 900, RestartPoint((900, 7), 30, 12345))
        outlet.append([numbers(1001, 300)], 1300)
        second = full(shipped)
        assert values([second]) == list(range(901, 1301))
        assert second.point == RestartPoint((900, 7), 30, 12345)
        stream.cancel()
    traffic = outlet.traffic
    assert (traffic.tuples, traffic.shipped) == (1200, 1200 * 24)
    assert (traffic.packed < traffic.shipped) == (codec is not None)
    assert (traffic.ratio < 1) == (codec is not None)


def test_a_quiet_standby_hears_of_new_points() -> None:
    outlet = an_outlet()
    outlet.attach("c")
    shipped = ship(outlet, "c", 0, epoch=1, batch=1000)
    outlet.append([numbers(1, 10)], 10)
    outlet.level1("c", 4, RestartPoint((4,), 4))
    beat = next(batch for batch in shipped if batch.point)  # one may have come before
    assert (beat.first, beat.rows, beat.point) == (1, 0, RestartPoint((4,), 4))


def test_the_batch_size_can_change_while_it_ships() -> None:
    outlet = an_outlet()
    outlet.attach("c")
    shipped = ship(outlet, "c", 0, epoch=1, batch=1000)
    outlet.append([numbers(1, 10)], 10)
    assert next(shipped).rows == 0
    outlet.batch_by("c", 2, 3)  # of another standby
    assert next(shipped).rows == 0
    outlet.batch_by("c", 1, 3)
    assert values([next(shipped)]) == list(range(1, 10))


def refused(outlet: LiveOutlet, **request: Any) -> AnabranchError:
    with pytest.raises(AnabranchError) as caught:
        next(follow(outlet, **request))
    return caught.value


def test_a_claim_ends_the_rule_of_the_one_before() -> None:
    outlet = an_outlet()
    outlet.attach("c")
    outlet.append([numbers(1, 10)], 10)
    followed = follow(outlet, "c", 0)
    next(followed)
    outlet.level1("c", 4, RestartPoint((4,), 2))
    shipped = ship(outlet, "c", 0, epoch=1, batch=1000)
    next(shipped)
    assert outlet.claim("c", 1) == (4, RestartPoint((4,), 2), 10)
    assert not any(batch.rows for batch in followed)  # it ends
    with pytest.raises(Superseded):
        next(shipped)
    assert isinstance(refused(outlet, consumer="c", after=4, epoch=0), Superseded)
    assert values(itertools.islice(follow(outlet, "c", 4, epoch=1), 1)) == list(range(5, 11))
    with pytest.raises(Superseded):
        outlet.claim("c", 0)


def test_nobody_is_served_by_one_that_stands_by() -> None:
    outlet = an_outlet()
    outlet.attach("c")
    outlet.produce_in(3, standing_by=True)
    outlet.append([numbers(1, 10)], 10)
    assert isinstance(refused(outlet, consumer="c", after=0), SiteError)
    outlet.produce_in(3)
    batch = next(follow(outlet, "c", 0))
    assert (batch.epoch, batch.rows) == (3, 10)


def test_a_consumer_that_died_while_it_waited_was_not_sent_what_came_then() -> None:
    """Who takes over for it catches up with what it had been sent."""
    outlet = an_outlet()
    outlet.attach("c")
    outlet.append([numbers(1, 10)], 10)
    pipe: Pipe = Pipe(LOOP, limit=0)
    following = follow(outlet, "c", 0, pipe=pipe)
    assert next(following).last == 10
    with LOOP:
        pipe.close()
        outlet.append([numbers(11, 10)], 20)
    assert [batch for batch in following if batch.rows] == []
    assert outlet.claim("c", 1) == (0, None, 10)
