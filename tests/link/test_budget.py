"""Inlets that share a budget: one may use it all, none ever waits for ever."""

from __future__ import annotations

import threading
import time

import pytest

from anabranch.link.inlet import Budget, LiveInlet
from anabranch.stream.batch import Batch
from tests.link import support
from tests.link.support import LOOP, numbers

TUPLE = 24
"""Bytes of a tuple."""
LIMIT = 80 * TUPLE
"""An inlet accepts 10 tuples whatever the others hold."""


def offer(inlet: LiveInlet, count: int) -> threading.Thread:
    """In a thread of its own, as a link does."""
    first = inlet.received + 1
    batch = Batch("S", first, first, 0, numbers(first, count))
    link = threading.Thread(target=support.offer, args=(inlet, batch), daemon=True)
    link.start()
    return link


def fill(inlet: LiveInlet, count: int) -> None:
    link = offer(inlet, count)
    link.join(5)
    assert not link.is_alive()


def blocked(link: threading.Thread) -> bool:
    time.sleep(0.05)
    return link.is_alive()


def test_one_inlet_may_use_all_of_it() -> None:
    budget = Budget(LOOP, LIMIT)
    busy, idle = (LiveInlet("S", limit=LIMIT, budget=budget) for _ in range(2))
    fill(busy, 79)
    fill(busy, 1)
    assert (busy.waiting, idle.waiting) == (80, 0)
    assert blocked(offer(busy, 1))


def test_what_a_running_instance_took_counts_until_it_is_done() -> None:
    inlet = LiveInlet("S", limit=LIMIT, budget=Budget(LOOP, LIMIT))
    fill(inlet, 80)
    inlet.take(1000)
    fill(inlet, 10)
    link = offer(inlet, 1)
    assert blocked(link)
    inlet.done()
    link.join(5)
    assert inlet.waiting == 11


def test_an_inlet_with_little_waiting_goes_beyond_a_budget_used_up() -> None:
    budget = Budget(LOOP, LIMIT)
    full, other = (LiveInlet("S", limit=LIMIT, budget=budget) for _ in range(2))
    fill(full, 80)
    fill(other, 9)
    fill(other, 5)
    assert other.waiting == 14
    assert blocked(offer(other, 1))


@pytest.mark.parametrize("taken", ["never", "before", "after"])
def test_an_inlet_that_closes_gives_all_back_once(taken: str) -> None:
    budget = Budget(LOOP, LIMIT)
    leaving, other = (LiveInlet("S", limit=LIMIT, budget=budget) for _ in range(2))
    fill(leaving, 80)
    fill(other, 10)
    link = offer(other, 1)
    assert blocked(link)
    if taken == "before":
        leaving.take(1000)
    leaving.close()
    leaving.close()
    if taken == "after":
        leaving.take(1000)
    leaving.done()
    link.join(5)
    assert other.waiting == 11
    with LOOP:
        assert budget._used == 11 * TUPLE


@pytest.mark.parametrize("seed", range(3))
def test_a_chain_of_inlets_on_a_tiny_budget_never_stops(seed: int) -> None:
    """Each passes on what it takes, blocking as its successor does; the last one drops it."""
    budget = Budget(LOOP, LIMIT)
    chain = [LiveInlet("S", limit=LIMIT, budget=budget) for _ in range(4)]

    def pass_on(inlet: LiveInlet, successor: LiveInlet | None) -> None:
        while inlet.taken < 3_000:
            batches = inlet.take(10 + seed) if inlet.ready else ()
            for batch in batches:
                if successor:
                    support.offer(successor, batch)
            inlet.done()
            if not batches:
                time.sleep(0.0005)

    tasks = [
        threading.Thread(target=pass_on, args=(inlet, successor), daemon=True)
        for inlet, successor in zip(chain, [*chain[1:], None], strict=True)
    ]
    for task in tasks:
        task.start()
    for first in range(1, 3_001, 10):
        support.offer(chain[0], Batch("S", first, first, 0, numbers(first, 10), first < 2_991))
    for task in tasks:
        task.join(20)
        assert not task.is_alive()
    with LOOP:
        assert budget._used == 0
