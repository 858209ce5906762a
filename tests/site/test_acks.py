"""Acks go upstream at intervals, and at once when there is reason to."""

from __future__ import annotations

import threading
import time

import pytest

from anabranch.errors import SiteError
from anabranch.link.emulation import Emulation
from anabranch.link.messages import Ack
from anabranch.site.links.acks import AckSender, following
from anabranch.stream.restart import RestartPoint
from tests.link.support import LOOP, eventually

IDLE = Ack("t", "idle", 0, 7, 0, RestartPoint((7,), 0))


class Upstream:
    """Notes the levels of the acks it gets; `away` makes it unreachable."""

    def __init__(self, interval_s: float) -> None:
        self.got: list[bool] = []
        self.tried = 0
        self.flowing = True
        self.received = 0
        self.idle = 0
        self.away = threading.Event()
        self.sender = AckSender(LOOP, "room1", interval_s, self.collect, self.send, Emulation())

    def collect(self, level0: bool) -> list[Ack]:
        self.received += self.flowing
        received = self.received if level0 else None
        return [Ack("s", "q", 0, received, 0, RestartPoint((self.received,), 0)), IDLE]

    async def send(self, acks: list[Ack]) -> None:
        self.tried += 1
        if self.away.is_set():
            raise SiteError("room1 is unreachable")
        self.got += [ack.received is not None for ack in acks if ack.consumer == "q"]
        self.idle += acks.count(IDLE)


def test_both_levels_go_at_intervals() -> None:
    upstream = Upstream(0.02)
    eventually(lambda: len(upstream.got) >= 4)
    upstream.sender.close()
    assert all(upstream.got)


def test_nothing_new_is_not_told_again() -> None:
    upstream = Upstream(0.01)
    upstream.flowing = False
    eventually(lambda: len(upstream.got) >= 1)
    before = len(upstream.got)
    time.sleep(0.2)
    assert len(upstream.got) <= before + 1
    upstream.flowing = True
    eventually(lambda: len(upstream.got) > before + 3)
    upstream.sender.close()


def test_of_several_only_what_moved_is_told() -> None:
    upstream = Upstream(0.01)
    eventually(lambda: len(upstream.got) >= 5)
    assert upstream.idle == 1
    upstream.sender.tell_all()  # it may have been started anew
    eventually(lambda: upstream.idle == 2)
    upstream.sender.close()


def test_a_release_is_told_at_once_and_alone() -> None:
    """Level-1 does not wait for the next Level-0."""
    upstream = Upstream(60)
    eventually(lambda: upstream.got == [True])
    upstream.sender.released()
    eventually(lambda: upstream.got == [True, False])
    upstream.sender.close()


def test_much_that_arrived_is_acknowledged_at_once() -> None:
    upstream = Upstream(60)
    eventually(lambda: upstream.got == [True])
    upstream.sender.arrived()
    eventually(lambda: upstream.got == [True, True])
    upstream.sender.close()


def test_a_lost_ack_is_made_up_for() -> None:
    upstream = Upstream(0.02)
    upstream.away.set()
    eventually(lambda: upstream.tried >= 3)
    before = len(upstream.got)
    upstream.away.clear()
    eventually(lambda: len(upstream.got) > before)
    upstream.sender.close()


def test_after_close_nothing_is_sent() -> None:
    upstream = Upstream(0.01)
    upstream.sender.close()
    before = upstream.tried
    upstream.sender.released()
    time.sleep(0.03)
    assert upstream.tried == before


@pytest.mark.parametrize("interval", [0.25, 0.1, 0.2, 0.02, 0.3, 0.7])
def test_the_next_time_is_never_now(interval: float) -> None:
    """However multiples are rounded: each time is behind the last, and no more than one."""
    now = 0.0
    for _ in range(5_000):
        due = following(now, interval)
        assert now < due <= now + interval * 1.000001
        now = due
