"""One producer and its consumers over links that lose, repeat and reconnect.

`LossyLink` is a state machine whose rules are the things that happen to a stream: tuples come,
batches travel, arrive, arrive twice or get lost with their connection, acks arrive late, in another
order, or never, consumers crash and start again from where the outlet says. Whatever the order of
events, the invariants hold, and `teardown` lets everything come to rest and checks that every
consumer has every tuple and that the outlet keeps none.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from anabranch.stream.batch import END_WATERMARK, START_WATERMARK, Batch
from anabranch.stream.inlet import Inlet
from anabranch.stream.outlet import Outlet
from anabranch.stream.restart import RestartPoint
from tests.stream.rows import Rows

NAMES = ("fast", "slow")
who = st.sampled_from(NAMES)


@dataclass
class Ack:
    consumer: str
    received: int | None
    point: RestartPoint


@dataclass
class Receiver:
    """A consumer's side. `history` is what it has taken, `needless` its restart point's input."""

    start: int
    inlet: Inlet[Rows]
    needless: int
    sent: int
    flying: deque[Batch[Rows]] = field(default_factory=deque)
    arrived: list[Batch[Rows]] = field(default_factory=list)
    history: list[tuple[int, tuple[int, int]]] = field(default_factory=list)
    told: int = 0
    """The greatest `needless` that it has ever put into an ack."""
    reached: int = 0
    """The last position that it, or the one before it, has ever received."""


class LossyLink(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.outlet: Outlet[Rows] = Outlet("S")
        self.receivers: dict[str, Receiver] = {}
        self.log: list[Batch[Rows]] = []
        self.disk: list[list[Batch[Rows]]] = []
        """What the outlet has forgotten, as it was written at a time."""
        self.acks: list[Ack] = []
        self.ended = False

    @initialize()
    def the_first_consumer(self) -> None:
        self.attach("fast")

    # -- the producer ----------------------------------------------------------------------------

    @precondition(lambda self: not self.ended)
    @rule(
        aheads=st.lists(st.integers(0, 9), min_size=1, max_size=5),
        sizes=st.integers(1, 3),
        rise=st.integers(0, 5),
    )
    def append(self, aheads: list[int], sizes: int, rise: int) -> None:
        floor = max(self.outlet.watermark, 0)
        data = Rows(tuple((floor + ahead, sizes) for ahead in aheads))
        self.log.append(self.outlet.append(data, floor + rise))

    @precondition(lambda self: not self.ended)
    @rule(rise=st.integers(1, 5))
    def idle(self, rise: int) -> None:
        assert self.outlet.advance(max(self.outlet.watermark, 0) + rise)

    @precondition(lambda self: len(self.log) > 8 and not self.ended)
    @rule()
    def end(self) -> None:
        self.ended = self.outlet.advance(END_WATERMARK)

    @rule(nbytes=st.integers(0, 20), rows=st.integers(0, 9))
    def spill(self, nbytes: int, rows: int) -> None:
        """The oldest of what is in memory is written to a disk, and forgotten."""
        if batches := self.outlet.oldest(nbytes, rows):
            assert len(batches) == 1 or sum(one.nbytes for one in batches) <= nbytes
            self.disk.append(batches)
            self.outlet.forget(batches[-1].last)

    def read(self, after: int) -> Batch[Rows] | None:
        """From the disk what is not in memory."""
        if not self.outlet.released <= after < self.outlet.in_memory_after:
            return self.outlet.read(after)
        return next(one.after(after) for part in self.disk for one in part if one.last > after)

    # -- consumers come, go and crash ------------------------------------------------------------

    @rule(name=who)
    def attach(self, name: str) -> None:
        if name not in self.receivers:
            start = self.outlet.attach(name)
            self.receivers[name] = Receiver(
                start, Inlet("S", start), start, start, told=start, reached=start
            )

    @precondition(lambda self: len(self.receivers) > 1)
    @rule(name=who)
    def detach(self, name: str) -> None:
        if self.receivers.pop(name, None):
            self.outlet.detach(name)
            self.acks = [ack for ack in self.acks if ack.consumer != name]

    @rule(name=who)
    def crash(self, name: str) -> None:
        """A fresh task starts from the restart point that the outlet remembers; the acks of the old
        one died with its connection."""
        if name in self.receivers:
            old = self.receivers[name]
            known = self.outlet.consumers[name]
            point = known.restart or RestartPoint((old.start,), old.start)
            (position,) = point.inputs
            self.acks = [ack for ack in self.acks if ack.consumer != name]
            self.read(position)
            self.receivers[name] = Receiver(
                old.start,
                Inlet("S", position),
                position,
                position,
                history=old.history[: position - old.start],
                told=old.told,
                reached=old.reached,
            )

    # -- the link --------------------------------------------------------------------------------

    @rule(name=who)
    def send(self, name: str) -> None:
        if name in self.receivers:
            receiver = self.receivers[name]
            batch = self.read(receiver.sent)
            if batch is None:
                first, watermark = receiver.sent + 1, self.outlet.watermark
                batch = Batch("S", first, watermark, self.outlet.epoch, Rows())
            receiver.flying.append(batch)
            receiver.sent = batch.last
            self.outlet.sent(name, batch.last)

    @rule(name=who)
    def arrive(self, name: str) -> None:
        if name in self.receivers and self.receivers[name].flying:
            receiver = self.receivers[name]
            batch = receiver.flying.popleft()
            receiver.inlet.offer(batch)
            receiver.arrived.append(batch)
            receiver.reached = max(receiver.reached, receiver.inlet.received)

    @rule(name=who, which=st.integers(0, 99))
    def arrive_again(self, name: str, which: int) -> None:
        if name in self.receivers and self.receivers[name].arrived:
            receiver = self.receivers[name]
            before = receiver.inlet.received
            assert receiver.inlet.offer(receiver.arrived[which % len(receiver.arrived)]) == 0
            assert receiver.inlet.received == before

    @rule(name=who)
    def break_connection(self, name: str) -> None:
        """All in flight is lost; the consumer subscribes anew from what it has."""
        if name in self.receivers:
            receiver = self.receivers[name]
            receiver.flying.clear()
            receiver.sent = receiver.inlet.received

    # -- the consumer's task ---------------------------------------------------------------------

    @rule(name=who, most=st.integers(1, 7))
    def take(self, name: str, most: int) -> None:
        if name in self.receivers:
            receiver = self.receivers[name]
            held = receiver.inlet.watermark
            for batch in receiver.inlet.take(most):
                for position, item in enumerate(batch.data.items, batch.first):
                    assert item[0] >= held, f"{position} at {item[0]} is behind watermark {held}"
                    receiver.history.append((position, item))
                held = max(held, batch.watermark)
            assert receiver.inlet.watermark >= held

    @rule(name=who, holds=st.integers(0, 3))
    def process(self, name: str, holds: int) -> None:
        """A window still needs the last `holds` tuples; the restart point never goes back."""
        if name in self.receivers:
            receiver = self.receivers[name]
            receiver.needless = max(receiver.needless, receiver.inlet.taken - holds)

    @rule(name=who)
    def flow(self, name: str) -> None:
        """Nothing goes wrong for once."""
        self.send(name)
        self.arrive(name)
        self.take(name, 7)
        self.process(name, 0)
        self.acknowledge(name, True)

    # -- acks ------------------------------------------------------------------------------------

    @rule(name=who, level0=st.booleans())
    def acknowledge(self, name: str, level0: bool) -> None:
        if name in self.receivers:
            receiver = self.receivers[name]
            receiver.told = max(receiver.told, receiver.needless)
            point = RestartPoint((receiver.needless,), receiver.needless)
            received = receiver.inlet.received if level0 else None
            self.acks.append(Ack(name, received, point))

    @precondition(lambda self: self.acks)
    @rule(which=st.integers(0, 99))
    def ack_arrives(self, which: int) -> None:
        ack = self.acks.pop(which % len(self.acks))
        before = self.outlet.released
        assert self.outlet.level1(ack.consumer, ack.point.inputs[0], ack.point) >= before
        if ack.received is not None:
            self.outlet.level0(ack.consumer, ack.received, 0)
            safe = self.outlet.acknowledged()
            assert all(safe <= one.told for one in self.receivers.values())

    @precondition(lambda self: self.acks)
    @rule(which=st.integers(0, 99))
    def ack_is_lost(self, which: int) -> None:
        self.acks.pop(which % len(self.acks))

    # -- what always holds -----------------------------------------------------------------------

    @invariant()
    def each_tuple_once_in_order(self) -> None:
        produced = [item for batch in self.log for item in batch.data.items]
        for receiver in self.receivers.values():
            taken = receiver.inlet.taken
            want = list(enumerate(produced[receiver.start : taken], receiver.start + 1))
            assert receiver.history == want

    @invariant()
    def nothing_needed_is_released(self) -> None:
        for name, receiver in self.receivers.items():
            assert self.outlet.released <= receiver.told
            known = self.outlet.consumers[name]
            assert known.received >= known.released
            if known.restart:
                assert known.restart.inputs == (known.released,)
            self.read(known.released)

    @invariant()
    def bytes_are_counted_right(self) -> None:
        outlet = self.outlet
        written = {batch.last: part[-1].last for part in self.disk for batch in part}
        kept = [
            (written.get(batch.last, batch.last), batch.data.nbytes)
            for batch in self.log
            if written.get(batch.last, batch.last) > outlet.released
        ]
        assert outlet.kept_bytes == sum(nbytes for _, nbytes in kept)
        in_memory = sum(nbytes for last, nbytes in kept if last not in written)
        assert outlet.memory_bytes == in_memory
        sent = [one.sent for one in outlet.consumers.values()]
        slowest, quickest = min(sent, default=outlet.last), max(sent, default=outlet.last)
        assert outlet.unsent_bytes() == sum(nbytes for last, nbytes in kept if last > slowest)
        unsent = sum(nbytes for last, nbytes in kept if last > quickest)
        assert outlet.unsent_to_quickest(outlet.consumers) == unsent
        for receiver in self.receivers.values():
            waiting = sum(batch.data.nbytes for batch in receiver.inlet._waiting)
            assert receiver.inlet.waiting_bytes == waiting

    @invariant()
    def progress_says_what_take_would_do(self) -> None:
        for receiver in self.receivers.values():
            inlet = receiver.inlet
            assert inlet.waiting == sum(batch.rows for batch in inlet._waiting)
            if inlet.waiting:
                assert inlet.progress
            if inlet.drained:
                assert self.ended
                assert inlet.taken == self.outlet.last
                assert not inlet.progress

    def check(self) -> None:
        self.each_tuple_once_in_order()
        self.nothing_needed_is_released()
        self.bytes_are_counted_right()
        self.progress_says_what_take_would_do()

    def teardown(self) -> None:
        """Everything comes to rest: all has arrived, everywhere, and is let go."""
        for name, receiver in self.receivers.items():
            self.break_connection(name)
            while receiver.inlet.received < self.outlet.last:
                self.send(name)
                self.arrive(name)
            self.send(name)
            self.arrive(name)
            self.take(name, 10**6)
            self.process(name, 0)
            assert receiver.inlet.taken == self.outlet.last
            assert receiver.inlet.watermark == self.outlet.watermark
            assert receiver.inlet.drained == self.ended
            self.acknowledge(name, True)
            self.ack_arrives(-1)
        self.check()
        if self.receivers:
            assert self.outlet.released == self.outlet.last == self.outlet.acknowledged()
            assert (self.outlet.kept_bytes, self.outlet.unsent_bytes()) == (0, 0)
        assert self.outlet.watermark >= START_WATERMARK


def drive(seed: int, steps: int) -> None:
    """A long run of the machine, always the same one for a seed."""
    rng = random.Random(seed)
    world = LossyLink()
    world.attach("fast")
    for _ in range(steps):
        step(world, rng)
        world.check()
    world.teardown()


def step(world: LossyLink, rng: random.Random) -> None:
    name = rng.choice(NAMES)
    match rng.choices(range(13), weights=[6, 1, 1, 1, 1, 8, 8, 2, 1, 6, 6, 6, 2])[0]:
        case 0 if not world.ended:
            world.append([rng.randrange(9) for _ in range(rng.randint(1, 5))], 2, rng.randrange(6))
        case 1 if not world.ended:
            world.idle(rng.randint(1, 5))
        case 2:
            world.attach(name)
        case 3 if len(world.receivers) > 1 and rng.random() < 0.2:
            world.detach(name)
        case 4:
            world.crash(name)
        case 5:
            world.send(name)
        case 6:
            world.arrive(name)
        case 7:
            world.arrive_again(name, rng.randrange(100))
        case 8:
            world.break_connection(name)
        case 9:
            world.take(name, rng.randint(1, 7))
            world.process(name, rng.randrange(4))
        case 10:
            world.acknowledge(name, rng.random() < 0.7)
        case 11 if world.acks and rng.random() < 0.9:
            world.ack_arrives(rng.randrange(100))
        case 11 if world.acks:
            world.ack_is_lost(rng.randrange(100))
        case 12:
            world.spill(rng.randrange(20), rng.randrange(10))
