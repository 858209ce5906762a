"""Acks go upstream at intervals, and at once when there is reason to."""

from __future__ import annotations

import threading
import time
from typing import Any

from anabranch.errors import SiteError
from anabranch.link.emulation import Emulation
from anabranch.site.acks import Ack, AckSender
from tests.link.support import eventually


class Upstream:
    """Notes the levels of the acks it gets; `away` makes it unreachable."""

    def __init__(self, interval_s: float) -> None:
        self.got: list[bool] = []
        self.tried = 0
        self.flowing = True
        self.received = 0
        self.away = threading.Event()
        self.sender = AckSender("room1", interval_s, self.collect, self.send, Emulation())

    def collect(self, level0: bool) -> list[Ack]:
        self.received += self.flowing
        return [{"level0": level0, "received": self.received}]

    def send(self, acks: list[dict[str, Any]]) -> None:
        self.tried += 1
        if self.away.is_set():
            raise SiteError("room1 is unreachable")
        self.got += [ack["level0"] for ack in acks]


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
    upstream.sender._thread.join(5)
    before = upstream.tried
    upstream.sender.released()
    time.sleep(0.03)
    assert upstream.tried == before
