"""A subscription keeps its inlet fed, over real sockets that break."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from anabranch.errors import AnabranchError, Gap, ProtocolError
from anabranch.link.emulation import Emulation, Slowed
from anabranch.link.inlet import LiveInlet
from anabranch.link.messages import Follow
from anabranch.link.network import FlightNetwork
from anabranch.link.outlet import LiveOutlet
from anabranch.link.peer import Peers
from anabranch.link.subscription import Subscription
from anabranch.runtime.pipe import Pipe
from anabranch.stream.batch import END_WATERMARK, Batch
from anabranch.stream.restart import RestartPoint
from tests.link.support import (
    LOOP,
    TOKEN,
    Taker,
    a_gate,
    a_proxy,
    an_inlet,
    an_outlet,
    eventually,
    follow,
    numbers,
    offer,
    values,
)

NO_DELAY = Emulation()


def subscribe(
    inlet: LiveInlet, address: str, emulation: Emulation = NO_DELAY, silence_s: float = 10
) -> tuple[Subscription, list[AnabranchError]]:
    peers = Peers(TOKEN)
    peers.update({"room1": address})
    network = FlightNetwork(LOOP, "here", peers)
    failures: list[AnabranchError] = []

    def connect(after: int) -> Any:
        stream = network.connect("room1", Follow("S", "c", after))
        return Slowed(LOOP, stream, emulation, silence_s) if emulation else stream

    return Subscription(LOOP, inlet, connect, failures.append, silence_s), failures


def close(link: Subscription) -> None:
    with LOOP:
        link.close()
    LOOP.run(link.join())


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
    inlet = an_inlet(limit=100_000)
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
        close(link)
    assert not failures
    assert link.breaks == 20
    assert taker.got == list(range(1, 200_001))
    assert outlet.kept() == (0, 0)


def test_a_connection_that_goes_silent_is_broken_and_made_anew() -> None:
    outlet, inlet = an_outlet(), an_inlet(limit=1 << 20)
    outlet.attach("c")
    with a_gate(outlet) as gate, a_proxy(gate.address) as proxy:
        link, failures = subscribe(inlet, proxy.address, silence_s=0.3)
        outlet.append([numbers(1, 10)], 1)
        eventually(lambda: inlet.received == 10)
        assert link.breaks == 0
        proxy.stall()
        outlet.append([numbers(11, 10)], 2)
        eventually(lambda: inlet.received == 20)
        assert link.breaks > 0
        outlet.end()
        eventually(lambda: bool(inlet.take(1000)) or inlet.drained)
        close(link)
    assert not failures


def test_a_slow_consumer_is_not_silence() -> None:
    """Its link is healthy: it waits for room, not for the network."""
    outlet, inlet = an_outlet(), an_inlet(limit=100)
    outlet.attach("c")
    with a_gate(outlet) as gate:
        link, _ = subscribe(inlet, gate.address, silence_s=0.2)
        outlet.append([numbers(1, 50), numbers(51, 50)], 1)
        eventually(lambda: inlet.received == 50)
        time.sleep(0.5)
        inlet.take(1000)
        eventually(lambda: inlet.received == 100)
        close(link)
    assert link.breaks == 0


def test_a_gate_that_comes_back_is_found_again() -> None:
    outlet, inlet = an_outlet(), an_inlet(limit=1 << 20)
    outlet.attach("c")
    outlet.append([numbers(1, 5)], 1)
    peers = Peers(TOKEN)
    network = FlightNetwork(LOOP, "here", peers)
    link = Subscription(
        LOOP, inlet, lambda after: network.connect("room1", Follow("S", "c", after)), pytest.fail
    )
    eventually(lambda: link.problem == "site room1 is unknown here")
    with a_gate(outlet) as gate:
        peers.update({"room1": gate.address})
        eventually(lambda: inlet.received == 5)
        assert link.problem == ""
        close(link)


# -- what cannot be mended -----------------------------------------------------------------------


class Given:
    """A connection that brings these and ends."""

    def __init__(self, *items: Batch[Any] | Exception) -> None:
        self._items = list(items)

    async def receive(self, seconds: float | None = None) -> Batch[Any] | None:
        item = self._items.pop(0) if self._items else None
        if isinstance(item, Exception):
            raise item
        return item

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (Given(Batch("S", 3, 1, 0, numbers(3, 1))), Gap),
        (Given(KeyError("a bug")), ProtocolError),
    ],
)
def test_what_trying_again_cannot_mend_is_reported(
    given: Given, kind: type[AnabranchError]
) -> None:
    """A link that died without a word would look like an idle stream."""
    failures: list[AnabranchError] = []
    link = Subscription(LOOP, an_inlet(limit=100), lambda after: given, failures.append)
    eventually(lambda: bool(failures))
    close(link)
    assert [type(failure) for failure in failures] == [kind]


def test_a_producer_whose_epoch_is_over_is_left_for_its_successor() -> None:
    """What it still sends is refused, and following anew goes to where the stream is now."""
    old = [Batch("S", 1, 1, 1, numbers(1, 2)), Batch("S", 3, 1, 0, numbers(3, 1))]
    new = [Batch("S", 3, END_WATERMARK, 1, numbers(3, 2))]
    connections = iter([Given(*old), Given(*new)])
    inlet = an_inlet(limit=1000)
    link = Subscription(LOOP, inlet, lambda after: next(connections), pytest.fail)
    eventually(lambda: inlet.received == 4)
    LOOP.run(link.join())
    assert values(inlet.take(10)) == [1, 2, 3, 4]


def test_a_stream_that_moved_is_followed_at_its_new_place_at_once() -> None:
    """Not only when the old connection, which may be silent, breaks."""
    first, second = an_outlet(), an_outlet()
    inlet = an_inlet(limit=1 << 20)
    where = [first]
    for outlet in (first, second):
        outlet.attach("c")
    first.append([numbers(1, 2)], 1)

    def connect(after: int) -> Any:
        pipe: Pipe = Pipe(LOOP, limit=0)
        LOOP.spawn(where[-1].follow(pipe, "c", after))
        return pipe

    link = Subscription(LOOP, inlet, connect, pytest.fail)
    eventually(lambda: inlet.received == 2)
    second.produce_in(1)
    second.append([numbers(1, 5)], 1)
    where.append(second)
    with LOOP:
        link.reroute()
    eventually(lambda: inlet.received == 5)
    close(link)
    assert values(inlet.take(10)) == [1, 2, 3, 4, 5]
    assert inlet.epoch == 1


def test_a_subscription_ends_with_its_stream() -> None:
    inlet = an_inlet(limit=1000)
    given = Given(Batch("S", 1, END_WATERMARK, 0, numbers(1, 3)))
    link = Subscription(LOOP, inlet, lambda after: given, pytest.fail)
    LOOP.run(link.join())
    assert values(inlet.take(10)) == [1, 2, 3]
    assert inlet.drained


@pytest.mark.parametrize("emulation", [NO_DELAY, Emulation(delay_s=0.01)])
def test_close_ends_an_idle_subscription(emulation: Emulation) -> None:
    outlet, inlet = an_outlet(), an_inlet(limit=1000)
    with a_gate(outlet) as gate:
        link, _ = subscribe(inlet, gate.address, emulation)
        outlet.append([numbers(1, 1)], 1)
        time.sleep(0.1)
        close(link)
        assert link.done


# -- back-pressure -------------------------------------------------------------------------------


def test_a_consumer_that_does_not_take_holds_the_producer() -> None:
    outlet = an_outlet(limit=1 << 20)
    inlet = an_inlet(limit=1 << 20)
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
        close(link)


def _settled(measure: Callable[[], int]) -> bool:
    before = measure()
    time.sleep(0.2)
    return measure() == before > 0


def _tells_room(outlet: LiveOutlet) -> list[bool]:
    """Whether there was room, each time that the producer heard of it."""
    appeared: list[bool] = []

    class Producer:
        def room_appeared(self) -> None:
            appeared.append(outlet.room())

        def acknowledge(self, position: int) -> None: ...

    outlet.produced_by(Producer())
    return appeared


def test_room_appears_once_for_those_who_wait() -> None:
    outlet = an_outlet(limit=1_000)
    outlet.attach("c")
    appeared = _tells_room(outlet)
    outlet.append([numbers(1, 30), numbers(31, 30)], 1)
    assert not outlet.room()
    assert not outlet.wait_for_room(_set())
    follower = follow(outlet, "c", 0)
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
    appeared = _tells_room(outlet)
    outlet.level1("c", 60, RestartPoint((60,), 60))
    assert appeared == [True]


def test_a_closed_inlet_lets_its_link_go() -> None:
    inlet = an_inlet(limit=1)
    offer(inlet, Batch("S", 1, 1, 0, numbers(1, 1)))
    blocked = threading.Thread(target=offer, args=(inlet, Batch("S", 2, 1, 0, numbers(2, 1))))
    blocked.start()
    inlet.close()
    blocked.join(5)
    assert not blocked.is_alive()
    assert inlet.received == 1


def test_much_unacknowledged_data_makes_an_ack_overdue() -> None:
    inlet = an_inlet(limit=4_000)
    offer(inlet, Batch("S", 1, 1, 0, numbers(1, 40)))
    assert not inlet.ack_overdue
    offer(inlet, Batch("S", 41, 1, 0, numbers(41, 2)))
    assert inlet.ack_overdue
    assert inlet.acked() == 42
    assert not inlet.ack_overdue


def _set() -> threading.Event:
    event = threading.Event()
    event.set()
    return event
