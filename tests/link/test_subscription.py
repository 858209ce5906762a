"""A subscription keeps its inlet fed, over real sockets that break."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from anabranch.errors import AnabranchError, Gap, ProtocolError, SiteError
from anabranch.link.emulation import Emulation
from anabranch.link.inlet import LiveInlet
from anabranch.link.outlet import LiveOutlet
from anabranch.link.peer import Peer
from anabranch.link.subscription import Subscription
from anabranch.stream.batch import END_WATERMARK, Batch
from anabranch.stream.restart import RestartPoint
from tests.link.support import (
    TOKEN,
    Taker,
    a_gate,
    a_proxy,
    an_outlet,
    eventually,
    numbers,
    values,
)

NO_DELAY = Emulation()


def subscribe(
    inlet: LiveInlet, address: str, emulation: Emulation = NO_DELAY
) -> tuple[Subscription, list[AnabranchError]]:
    peer = Peer("room1", address, TOKEN)
    failures: list[AnabranchError] = []
    link = Subscription(
        inlet, lambda after: peer.follow("S", "c", after, 0), lambda: emulation, failures.append
    )
    link.start()
    return link, failures


class Producer:
    """Appends numbers 1…`count` as room permits, then ends the stream."""

    def __init__(self, outlet: LiveOutlet, count: int, size: int) -> None:
        self._outlet = outlet
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(count, size))
        self._thread.start()

    def _run(self, count: int, size: int) -> None:
        for first in range(1, count + 1, size):
            if not self._outlet.wait_for_room(self._stopped):
                return
            self._outlet.append([numbers(first, size)], first + size)
        self._outlet.end()

    def close(self) -> None:
        self._stopped.set()
        self._thread.join()


# -- broken networks -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 2])
def test_twenty_cut_connections_lose_nothing(seed: int) -> None:
    """Receivers drop positions they have; a subscription goes on behind the last one received."""
    rng = random.Random(seed)
    cuts = [rng.randrange(1, 200_000) for _ in range(20)]
    outlet = an_outlet(limit=100_000)
    inlet = LiveInlet("S", limit=100_000)
    outlet.attach("c")

    def acknowledge(last: int) -> None:
        outlet.level1("c", last, RestartPoint((last,), last))
        outlet.level0("c", last, 0)

    with a_gate(outlet) as gate, a_proxy(gate.address, cuts) as proxy:
        link, failures = subscribe(inlet, proxy.address)
        producer = Producer(outlet, 200_000, 1_000)
        taker = Taker(inlet, acknowledge)
        eventually(lambda: inlet.drained or bool(failures), within_s=30)
        producer.close()
        taker.close()
        link.close()
        link.join()
    assert not failures
    assert link.breaks == 20
    assert taker.got == list(range(1, 200_001))
    assert outlet.kept() == (0, 0)


def test_a_connection_that_goes_silent_is_broken_and_made_anew() -> None:
    outlet, inlet = an_outlet(), LiveInlet("S", limit=1 << 20)
    outlet.attach("c")
    with a_gate(outlet) as gate, a_proxy(gate.address) as proxy:
        link, failures = subscribe(inlet, proxy.address)
        outlet.append([numbers(1, 10)], 1)
        eventually(lambda: inlet.received == 10)
        link.check_silence(0.3)
        assert link.breaks == 0
        proxy.stall()
        outlet.append([numbers(11, 10)], 2)
        eventually(lambda: link.check_silence(0.3) or inlet.received == 20, within_s=5)
        outlet.end()
        eventually(lambda: bool(inlet.take(1000)) or inlet.drained)
        link.close()
        link.join()
    assert not failures


def test_a_slow_consumer_is_not_silence() -> None:
    """Its link is healthy: it waits for room, not for the network."""
    outlet, inlet = an_outlet(), LiveInlet("S", limit=100)
    outlet.attach("c")
    with a_gate(outlet) as gate:
        link, _ = subscribe(inlet, gate.address)
        outlet.append([numbers(1, 50), numbers(51, 50)], 1)
        eventually(lambda: inlet.received == 50)
        time.sleep(0.2)
        link.check_silence(0.1)
        inlet.take(1000)
        eventually(lambda: inlet.received == 100)
        link.close()
        link.join()
    assert link.breaks == 0


def test_a_gate_that_comes_back_is_found_again() -> None:
    outlet, inlet = an_outlet(), LiveInlet("S", limit=1 << 20)
    outlet.attach("c")
    outlet.append([numbers(1, 5)], 1)
    peers: list[Peer] = []

    def follow(after: int) -> Any:
        if not peers:
            raise SiteError("room1 is unreachable")
        return peers[-1].follow("S", "c", after, 0)

    link = Subscription(inlet, follow, lambda: NO_DELAY, pytest.fail)
    link.start()
    eventually(lambda: link.problem == "room1 is unreachable")
    with a_gate(outlet) as gate:
        peers.append(Peer("room1", gate.address, TOKEN))
        eventually(lambda: inlet.received == 5)
        assert link.problem == ""
        link.close()
        link.join()


# -- what cannot be mended -----------------------------------------------------------------------


def garbled(after: int) -> Iterator[Batch[Any]]:
    raise KeyError("a bug")
    yield


def replayed(*batches: Batch[Any]) -> Callable[[int], Iterator[Batch[Any]]]:
    return lambda after: iter(batches)


@pytest.mark.parametrize(
    ("follow", "kind"),
    [
        (replayed(Batch("S", 3, 1, 0, numbers(3, 1))), Gap),
        (garbled, ProtocolError),
    ],
)
@pytest.mark.parametrize("emulation", [NO_DELAY, Emulation(delay_s=0.001)])
def test_what_trying_again_cannot_mend_is_reported(
    follow: Callable[[int], Any], kind: type[AnabranchError], emulation: Emulation
) -> None:
    """A link that died without a word would look like an idle stream."""
    failures: list[AnabranchError] = []
    link = Subscription(LiveInlet("S", limit=100), follow, lambda: emulation, failures.append)
    link.start()
    eventually(lambda: bool(failures))
    link.close()
    link.join()
    assert [type(failure) for failure in failures] == [kind]


def test_a_producer_whose_epoch_is_over_is_left_for_its_successor() -> None:
    """What it still sends is refused, and following anew goes to where the stream is now."""
    old = [Batch("S", 1, 1, 1, numbers(1, 2)), Batch("S", 3, 1, 0, numbers(3, 1))]
    new = [Batch("S", 3, END_WATERMARK, 1, numbers(3, 2))]
    connections = iter([iter(old), iter(new)])
    inlet = LiveInlet("S", limit=1000)
    link = Subscription(inlet, lambda after: next(connections), lambda: NO_DELAY, pytest.fail)
    link.start()
    eventually(lambda: inlet.received == 4)
    link.join()
    assert values(inlet.take(10)) == [1, 2, 3, 4]


def test_a_stream_that_moved_is_followed_at_its_new_place_at_once() -> None:
    """Not only when the old connection, which may be silent, breaks."""
    first, second = an_outlet(), an_outlet()
    inlet = LiveInlet("S", limit=1 << 20)
    where = [first]
    for outlet in (first, second):
        outlet.attach("c")
    first.append([numbers(1, 2)], 1)

    def follow(after: int) -> Any:
        return where[-1].follow("c", after)

    link = Subscription(inlet, follow, lambda: NO_DELAY, pytest.fail)
    link.start()
    eventually(lambda: inlet.received == 2)
    second.reign(1)
    second.append([numbers(1, 5)], 1)
    where.append(second)
    link.reroute()
    eventually(lambda: inlet.received == 5)
    link.close()
    link.join()
    assert values(inlet.take(10)) == [1, 2, 3, 4, 5]
    assert inlet.epoch == 1


def test_a_subscription_ends_with_its_stream() -> None:
    inlet = LiveInlet("S", limit=1000)
    follow = replayed(Batch("S", 1, END_WATERMARK, 0, numbers(1, 3)))
    link = Subscription(inlet, follow, lambda: NO_DELAY, pytest.fail)
    link.start()
    link._thread.join(5)
    assert not link._thread.is_alive()
    assert values(inlet.take(10)) == [1, 2, 3]
    assert inlet.drained


@pytest.mark.parametrize("emulation", [NO_DELAY, Emulation(delay_s=0.01)])
def test_close_ends_an_idle_subscription(emulation: Emulation) -> None:
    outlet, inlet = an_outlet(), LiveInlet("S", limit=1000)
    with a_gate(outlet) as gate:
        link, _ = subscribe(inlet, gate.address, emulation)
        outlet.append([numbers(1, 1)], 1)
        time.sleep(0.1)
        link.close()
        link._thread.join(2)
        assert not link._thread.is_alive()


# -- back-pressure -------------------------------------------------------------------------------


def test_a_consumer_that_does_not_take_holds_the_producer() -> None:
    outlet = an_outlet(limit=1 << 20)
    inlet = LiveInlet("S", limit=1 << 20)
    outlet.attach("c")
    block = numbers(1, 20_000)
    most = 400
    produced = 0
    stopped = threading.Event()

    def produce() -> None:
        nonlocal produced
        while produced < most and outlet.wait_for_room(stopped):
            outlet.append([block], 1)
            produced += 1

    with a_gate(outlet) as gate:
        link, _ = subscribe(inlet, gate.address)
        producer = threading.Thread(target=produce)
        producer.start()
        eventually(lambda: _settled(lambda: produced))
        assert not outlet.room()
        held = produced
        assert held * block.nbytes < 100 << 20
        assert held < most
        assert inlet.waiting * 24 < 2 << 20

        taken = 0
        while taken < most * block.num_rows:
            taken += sum(batch.rows for batch in inlet.take(1 << 30))
        producer.join(5)
        assert produced == most
        stopped.set()
        link.close()
        link.join()


def _settled(measure: Callable[[], int]) -> bool:
    before = measure()
    time.sleep(0.2)
    return measure() == before > 0


def test_room_appears_once_for_those_who_wait() -> None:
    outlet = an_outlet(limit=1_000)
    outlet.attach("c")
    appeared: list[bool] = []
    outlet.on_room = lambda: appeared.append(outlet.room())
    outlet.append([numbers(1, 30), numbers(31, 30)], 1)
    assert not outlet.room()
    assert not outlet.wait_for_room(_set())
    follower = outlet.follow("c", 0)
    next(follower)
    assert appeared == [True]
    next(follower)
    assert appeared == [True]


@pytest.mark.parametrize("leave", ["detach", "close"])
def test_a_producer_that_waits_is_let_go(leave: str) -> None:
    outlet = an_outlet(limit=10)
    outlet.attach("c")
    outlet.append([numbers(1, 30)], 1)
    answers: list[bool] = []
    never = threading.Event()
    waiter = threading.Thread(target=lambda: answers.append(outlet.wait_for_room(never)))
    waiter.start()
    if leave == "detach":
        outlet.detach("c")
    else:
        outlet.close()
    waiter.join(5)
    assert answers == [leave == "detach"]


def test_the_release_of_unsent_tuples_makes_room_too() -> None:
    """After a reconnect the outlet may think less was sent than the consumer has let go of."""
    outlet = an_outlet(limit=1_000)
    outlet.attach("c")
    outlet.append([numbers(1, 30), numbers(31, 30)], 1)
    appeared: list[bool] = []
    outlet.on_room = lambda: appeared.append(outlet.room())
    outlet.level1("c", 60, RestartPoint((60,), 60))
    assert appeared == [True]


def test_a_closed_inlet_lets_its_link_go() -> None:
    inlet = LiveInlet("S", limit=1)
    inlet.offer(Batch("S", 1, 1, 0, numbers(1, 1)))
    blocked = threading.Thread(target=inlet.offer, args=(Batch("S", 2, 1, 0, numbers(2, 1)),))
    blocked.start()
    inlet.close()
    blocked.join(5)
    assert not blocked.is_alive()
    assert inlet.received == 1


def test_much_unacknowledged_data_makes_an_ack_overdue() -> None:
    inlet = LiveInlet("S", limit=4_000)
    inlet.offer(Batch("S", 1, 1, 0, numbers(1, 40)))
    assert not inlet.ack_overdue
    inlet.offer(Batch("S", 41, 1, 0, numbers(41, 2)))
    assert inlet.ack_overdue
    assert inlet.acked() == 42
    assert not inlet.ack_overdue


def _set() -> threading.Event:
    event = threading.Event()
    event.set()
    return event
