"""The inputs of a standby: what it is shipped, what it does with it, and what it puts off."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import pyarrow as pa

from anabranch.errors import AnabranchError, SiteError
from anabranch.link.codec import unpacker
from anabranch.link.inlet import LiveInlet
from anabranch.link.subscription import Batches, Subscription
from anabranch.link.wire import wire_schema
from anabranch.plan.tasks import Input
from anabranch.site.links import Links
from anabranch.site.spark import arrow_schema
from anabranch.site.task import Task
from anabranch.site.upstream import Upstream
from anabranch.standby.patience import Patience
from anabranch.standby.secondary import Action, Claim, Feed, Secondary
from anabranch.stream.batch import Batch
from anabranch.stream.restart import RestartPoint


class _Collector:
    """One input of a standby as its subscription sees it."""

    def __init__(self, inputs: StandbyInputs, index: int, stream: str) -> None:
        self._inputs = inputs
        self._index = index
        self.stream = stream

    @property
    def received(self) -> int:
        return self._inputs.received[self._index]

    def offer(self, batch: Batch[pa.RecordBatch]) -> None:
        self._inputs.offer(self._index, batch)

    def expect_no_more(self) -> None:
        """Shipments are processed as they come."""

    def close(self) -> None:
        """The standby goes on."""


class StandbyInputs:
    """Of one task that was begun at `point`, to rule in `epoch` if need be; shipped in batches of
    `batch` tuples. `consider` has the executor look at the task; `on_failure` hears of links that
    cannot go on."""

    def __init__(
        self,
        task: Task,
        point: RestartPoint,
        epoch: int,
        batch: int,
        codec: str | None,
        links: Links,
        upstream: Upstream,
        new_inlets: Callable[[], Sequence[LiveInlet]],
        patience: Patience,
        consider: Callable[[], None],
        on_failure: Callable[[AnabranchError], None],
    ) -> None:
        self._task = task
        self._epoch = epoch
        self._codec = codec
        self._upstream = upstream
        self._new_inlets = new_inlets
        self._patience: Patience | None = patience
        self._consider = consider
        self.batches = [batch for _ in task.spec.inputs]
        self.jumps = 0
        self._secondary: Secondary[pa.RecordBatch] = Secondary(point)
        self._lock = threading.RLock()
        self._heard: set[int] = set()
        self._over = threading.Event()
        self._subscriptions = [
            self._subscribe(index, source, links, on_failure)
            for index, source in enumerate(task.spec.inputs)
        ]
        task.may_wait = self._may_wait

    def start(self) -> None:
        for subscription in self._subscriptions:
            subscription.start()

    def close(self) -> None:
        """Nothing more is to come in, nor put off."""
        self._patience = None
        self._over.set()
        for subscription in self._subscriptions:
            subscription.close()

    @property
    def heard_all(self) -> bool:
        return len(self._heard) == len(self._subscriptions)

    @property
    def received(self) -> tuple[int, ...]:
        return self._secondary.received

    @property
    def kept(self) -> int:
        return self._secondary.kept

    # -- shipments -------------------------------------------------------------------------------

    def _subscribe(
        self,
        index: int,
        source: Input,
        links: Links,
        on_failure: Callable[[AnabranchError], None],
    ) -> Subscription:
        collector = _Collector(self, index, source.stream)
        schema = wire_schema(arrow_schema(source.columns))
        decode = unpacker(schema, self._codec) if self._codec else _same
        return links.subscription(source, collector, partial(self._ship, index), on_failure, decode)

    def _ship(self, index: int, after: int) -> Batches:
        return self._upstream.ship(
            index, after, self._epoch, self.batches[index], self._codec, self._over.is_set
        )

    def batch_by(self, index: int, batch: int) -> None:
        """Have an input shipped in batches of another size."""
        self.batches[index] = batch
        self._upstream.batch_by(index, self._epoch, batch)

    def reroute(self, stream: str) -> None:
        for source, link in zip(self._task.spec.inputs, self._subscriptions, strict=True):
            if source.stream == stream:
                link.reroute()

    def offer(self, index: int, batch: Batch[pa.RecordBatch]) -> None:
        """A shipment or heartbeat has come."""
        with self._lock:
            feeds = self._perform(self._secondary.offer(index, batch, self._task.idle_at()))
            self._heard.add(index)
        for inlet, fed in feeds:  # which may block; a restart meanwhile closes the inlet
            inlet.offer(fed)

    def _perform(
        self, actions: list[Action[pa.RecordBatch]]
    ) -> list[tuple[LiveInlet, Batch[pa.RecordBatch]]]:
        """Begin anew if need be; what is to be fed to which inlet."""
        feeds = []
        for action in actions:
            if isinstance(action, Feed):
                feeds.append((self._task.inlets[action.index], action.batch))
                continue
            self.jumps += 1
            inlets = self._new_inlets()
            for inlet, position, kept in zip(inlets, action.point.inputs, action.kept, strict=True):
                inlet.start_at(position)
                inlet.preload(kept)
            self._task.restart(action.point, inlets)
            self._consider()
        self._task.learn(self._secondary.point)
        return feeds

    # -- what is put off -------------------------------------------------------------------------

    def _may_wait(self) -> bool:
        """Under load the primary's acks soon make much of the work needless."""
        patience, inlets = self._patience, self._task.inlets
        if patience is None:
            return False
        taken = tuple(inlet.taken for inlet in inlets)
        waiting = sum(inlet.waiting_bytes for inlet in inlets)
        return patience.waits(time.monotonic(), taken, waiting)

    def look_up(self) -> None:
        """Called now and then. While an input is full no shipment tells what was released: ask."""
        if any(inlet.full for inlet in self._task.inlets):
            try:
                stands = [self._upstream.standing(i) for i in range(len(self._task.inlets))]
            except SiteError:
                return  # it is told when it is back
            self._learn(one.restart for one in stands)
        self._consider()  # what has waited long enough

    def _learn(self, points: Iterable[RestartPoint | None]) -> None:
        with self._lock:
            for point in filter(None, points):
                self._perform(self._secondary.learn(point, self._task.idle_at()))

    # -- take-over -------------------------------------------------------------------------------

    def take_over(self, claims: Sequence[Claim]) -> None:
        """The producers have agreed, and it is closed. What waits is skipped or processed at once:
        a link may be waiting for space. Raises Gap as `Secondary.take_over`."""
        self._learn(one.restart for one in claims)
        self._consider()
        for subscription in self._subscriptions:
            subscription.join()
        with self._lock:
            self._perform(self._secondary.take_over(claims, self._task.idle_at()))


def _same(batch: Batch[pa.RecordBatch]) -> Batch[pa.RecordBatch]:
    return batch
