"""Emulated links: slower, in order, and honest about errors; in virtual time."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from anabranch.errors import SiteError
from anabranch.link import emulation
from anabranch.link.emulation import Emulation, Slowed
from anabranch.runtime.pipe import Pipe
from anabranch.stream.batch import Batch
from simulation.clock import Clock, Process
from tests.link.support import numbers


class Link:
    """Batches 1…`count` are handed to the link as fast as it takes them; `got` arrive."""

    def __init__(self, count: int, link: Emulation, *, rows: int = 1, takes: int = 10**6) -> None:
        self.clock = Clock()
        self.process = Process("here", self.clock, Random(0))
        self.sent: list[int] = []
        self.got: list[tuple[int, int]] = []
        self.error: Exception | None = None
        self.pipe: Pipe[Any] = Pipe(self.process, limit=0)
        self.slowed: Slowed[Any] = Slowed(self.process, self.pipe, link, None)
        self.process.spawn(self._send(count, rows))
        self.reading = self.process.spawn(self._read(takes))

    async def _send(self, count: int, rows: int) -> None:
        data = numbers(1, rows)
        for n in range(1, count + 1):
            if not await self.pipe.send(Batch("S", n, n, 0, data)):
                return
            self.sent.append(n)

    async def _read(self, takes: int) -> None:
        try:
            while takes and (batch := await self.slowed.receive()):
                self.got.append((batch.first, self.clock.now))
                takes -= 1
        except SiteError as error:
            self.error = error

    def run(self, until: int = 100_000) -> list[int]:
        self.clock.run(until, lambda: False)
        return [n for n, _ in self.got]


def test_order_is_kept_under_jitter() -> None:
    link = Link(300, Emulation(delay_s=0.001, jitter_s=0.05))
    assert link.run() == list(range(1, 301))


def test_many_travel_at_a_time() -> None:
    link = Link(50, Emulation(delay_s=0.1))
    assert link.run() == list(range(1, 51))
    assert {at for _, at in link.got} == {100}


def test_bandwidth_is_what_one_batch_after_the_other_occupies() -> None:
    link = Link(20, Emulation(bytes_per_s=24 / 0.01))
    link.run()
    assert [at for _, at in link.got] == [10 * n for n in range(1, 21)]


def test_an_error_comes_after_what_was_under_way() -> None:
    link = Link(3, Emulation(delay_s=0.02))
    link.clock.after(1, link.pipe.end, SiteError("room1 is unreachable"))
    assert link.run() == [1, 2, 3]
    assert str(link.error) == "room1 is unreachable"


def test_closing_ends_it_even_when_nothing_comes() -> None:
    link = Link(1, Emulation(delay_s=0.001))
    link.clock.after(50, link.slowed.close)
    assert link.run() == [1]
    assert link.reading.done
    assert link.pipe.gone


def test_no_more_is_under_way_than_fits() -> None:
    """However many batches that is: what is sent, others take for delivered."""
    link = Link(100, Emulation(delay_s=0.001), rows=100_000, takes=1)
    fits = emulation.FLYING_BYTES // numbers(1, 100_000).nbytes
    assert 2 < fits < 20
    link.run()
    assert fits <= len(link.sent) <= fits + 4


@pytest.mark.parametrize("delay_s", [0.0, 0.5])
def test_silence_is_that_of_the_link_below(delay_s: float) -> None:
    link = Link(1, Emulation(delay_s=0.001 + delay_s))
    link.slowed._silence_s = 0.2
    link.run()
    assert link.got
    assert "nothing was heard" in str(link.error)
