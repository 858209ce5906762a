"""Standing by for a task: runs it on what is shipped, watches its primary, and takes over."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import pyarrow as pa

from anabranch.config.cluster import Cluster
from anabranch.errors import AnabranchError, Gap, SiteError, Superseded
from anabranch.link.codec import unpacker
from anabranch.link.inlet import LiveInlet
from anabranch.link.peer import Peers, refused
from anabranch.link.subscription import Batches, Subscription
from anabranch.link.wire import wire_schema
from anabranch.plan.tasks import Input
from anabranch.site.links import Links
from anabranch.site.measures import Cost
from anabranch.site.spark import arrow_schema
from anabranch.site.task import Task
from anabranch.site.tuning import Costs, Tuning, Wishes
from anabranch.site.upstream import Standing, Upstream
from anabranch.standby.detector import Beat, Detector
from anabranch.standby.patience import PATIENCE_S, Patience
from anabranch.standby.secondary import Action, Claim, Feed, Secondary
from anabranch.stream.batch import Batch
from anabranch.stream.restart import RestartPoint
from anabranch.stream.routes import Route

RETRY_S = 0.05
CATCH_UP_S = 120.0
ENOUGH = 20
"""Instances of its own from which a standby knows what it costs here; else it asks its primary."""
RTTS = 15
"""Calls to the primary whose median counts: one may be slow by chance."""


@dataclass(frozen=True)
class Post:
    """What a standby is told of its post: whom it stands by for, in which epoch it would rule, and
    how it is shipped to."""

    primary: str
    epoch: int
    batch: int
    codec: str | None
    wishes: Wishes


class _Collector:
    """One input of a standby as its subscription sees it."""

    def __init__(self, guard: Guard, index: int, stream: str) -> None:
        self._guard = guard
        self._index = index
        self.stream = stream

    @property
    def received(self) -> int:
        return self._guard.received(self._index)

    def offer(self, batch: Batch[pa.RecordBatch]) -> None:
        self._guard.offer(self._index, batch)

    def expect_no_more(self) -> None:
        """Shipments are processed as they come."""

    def close(self) -> None:
        """The guard goes on."""


class Guard:
    """Of one task at the site `name`, begun at `point`.

    `consider` has the executor look at the task; `on_primary` is told when the task has taken over,
    `on_recovered` when it has caught up, `on_retired` when another has been given the post.
    """

    def __init__(
        self,
        name: str,
        task: Task,
        point: RestartPoint,
        post: Post,
        cluster: Cluster,
        links: Links,
        peers: Peers,
        new_inlets: Callable[[], Sequence[LiveInlet]],
    ) -> None:
        self.post = post
        self.task = task
        self.consider: Callable[[], None] = lambda: None
        self.on_primary: Callable[[], None] = lambda: None
        self.on_recovered: Callable[[], None] = lambda: None
        self.on_retired: Callable[[], None] = lambda: None
        self.state = "standby"
        self.jumps = 0
        self.timeline: dict[str, float] = {}
        """When the primary was found dead and how far the take-over came, in seconds since 1970."""
        self.beaten = 0.0
        """When the primary last answered, on the same clock."""
        self._name = name
        self._links = links
        self._peers = peers
        self._upstream = Upstream(name, task.spec, links, peers)
        self._new_inlets = new_inlets
        self._secondary: Secondary[pa.RecordBatch] = Secondary(point)
        self._lock = threading.RLock()
        self._heard: set[int] = set()
        self._batches = [post.batch for _ in task.spec.inputs]
        self._heartbeat_s = cluster.heartbeat_interval_us / 1e6
        self._missed = cluster.missed_heartbeats
        self._rtts: deque[float] = deque(maxlen=RTTS)
        self._costs = Costs(0.0, 0.0, 0.0)
        # Whoever names a recovery time has all done that may be needed for it.
        self._patience = Patience(0.0 if post.wishes.recovery_s else PATIENCE_S)
        task.may_wait = self._may_wait
        self._tuning = Tuning(
            task.spec,
            cluster,
            name,
            post.wishes,
            self._upstream.measured,
            lambda: self._costs,
            self.batch_by,
        )
        self._over = threading.Event()
        self._asked = threading.Event()
        self._subscriptions = [self._subscribe(i, one) for i, one in enumerate(task.spec.inputs)]
        self._thread = threading.Thread(
            target=self._watch, name=f"{name}-guard-{task.spec.name}", daemon=True
        )

    def start(self) -> None:
        for subscription in self._subscriptions:
            subscription.start()
        self._thread.start()
        self._tuning.start()

    def close(self) -> None:
        """Stand by no more."""
        self._over.set()
        self._tuning.close()
        self._asked.set()
        for subscription in self._subscriptions:
            subscription.close()

    @property
    def protects(self) -> bool:
        """Heard from every input: it could take over now."""
        return self.state == "standby" and len(self._heard) == len(self.task.spec.inputs)

    def received(self, index: int) -> int:
        return self._secondary.received[index]

    # -- inputs ----------------------------------------------------------------------------------

    def _subscribe(self, index: int, source: Input) -> Subscription:
        collector = _Collector(self, index, source.stream)
        ship = partial(self._ship, index)
        codec = self.post.codec
        decode = unpacker(wire_schema(arrow_schema(source.columns)), codec) if codec else _same
        return self._links.subscription(source, collector, ship, self._failed, decode)

    def _ship(self, index: int, after: int) -> Batches:
        epoch, batch, codec = self.post.epoch, self._batches[index], self.post.codec
        return self._upstream.ship(index, after, epoch, batch, codec, self._over.is_set)

    def offer(self, index: int, batch: Batch[pa.RecordBatch]) -> None:
        """A shipment or heartbeat has come."""
        with self._lock:
            feeds = self._perform(self._secondary.offer(index, batch, self.task.idle_at()))
            self.task.learn(self._secondary.point)
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
                feeds.append((self.task.inlets[action.index], action.batch))
                continue
            self.jumps += 1
            inlets = self._new_inlets()
            for inlet, position, kept in zip(inlets, action.point.inputs, action.kept, strict=True):
                inlet.start_at(position)
                inlet.preload(kept)
            self.task.restart(action.point, inlets)
            self.consider()
        return feeds

    def _failed(self, error: AnabranchError) -> None:
        if self.state != "standby":
            return  # our own claim has ended the shipments
        if isinstance(error, Superseded):
            self._retire()
        else:
            self.task.fail(error)

    def reroute(self, stream: str) -> None:
        for source, link in zip(self.task.spec.inputs, self._subscriptions, strict=True):
            if source.stream == stream and self.state == "standby":
                link.reroute()

    def _may_wait(self) -> bool:
        """Under load the primary's acks soon make much of the work needless."""
        inlets = self.task.inlets
        if self.state != "standby":
            return False
        taken = tuple(inlet.taken for inlet in inlets)
        waiting = sum(inlet.waiting_bytes for inlet in inlets)
        return self._patience.waits(time.monotonic(), taken, waiting)

    def _look_up(self) -> None:
        """While an input is full no shipment tells what was released: ask."""
        if not any(inlet.full for inlet in self.task.inlets):
            return
        try:
            points = [self._upstream.standing(i).restart for i in range(len(self.task.inlets))]
        except SiteError:
            return  # it is told when it is back
        with self._lock:
            for point in filter(None, points):
                self._perform(self._secondary.learn(point, self.task.idle_at()))
            self.task.learn(self._secondary.point)

    # -- tuning ----------------------------------------------------------------------------------

    def batch_by(self, index: int, batch: int) -> None:
        """Have an input shipped in batches of another size."""
        self._batches[index] = batch
        self._upstream.batch_by(index, self.post.epoch, batch)

    # -- take-over -------------------------------------------------------------------------------

    def take_over(self) -> None:
        """Now, though the primary may be well."""
        self._asked.set()

    def _watch(self) -> None:
        detector = Detector(self._missed)
        while not self._asked.wait(self._heartbeat_s):
            if detector.heard(self._beat()):
                break
            self._look_up()
            self.consider()
        if not self._over.is_set():
            self.timeline["noticed"] = time.time()
            self._claim()

    def _beat(self) -> Beat:
        begun = time.monotonic()
        try:
            answer = self._peers[self.post.primary].call(
                "beat", timeout_s=self._heartbeat_s, task=self.task.spec.name
            )
        except SiteError as error:
            return Beat.REFUSED if refused(error) else Beat.SILENT
        self.beaten = time.time()
        self._rtts.append(time.monotonic() - begun)
        rtt_s = median(self._rtts)
        measures = self.task.measures
        known = measures.cost() if measures.instances >= ENOUGH else _cost(answer)
        self._costs = Costs(known.fixed, known.per_tuple, rtt_s)
        return Beat.ALIVE if answer["runs"] else Beat.ABSENT

    def _claim(self) -> None:
        """Tell everyone, learn from upstream where to go on, and go on. What is there already can
        be sent at once: it is what the primary would send."""
        self.state = "claiming"
        self._tuning.close()
        for subscription in self._subscriptions:
            subscription.close()
        self.task.take_over()
        self._announce()
        try:
            answers = self._all_claimed()
            for subscription in self._subscriptions:
                subscription.join()
            with self._lock:
                claims = [Claim(one.released, one.restart) for one in answers]
                self._perform(self._secondary.take_over(claims, self.task.idle_at()))
                self.task.learn(self._secondary.point)
        except (Superseded, Gap):  # replaced; or someone who knows more must be posted instead
            self._retire()
            return
        if self._over.is_set():
            return
        self.timeline["claimed"] = time.time()
        self.state = "primary"
        self._links.follow_inputs(self.task)
        self.consider()
        self.on_primary()
        self._catch_up([one.sent for one in answers])

    def _catch_up(self, sent: Sequence[int]) -> None:
        """Note when all that the primary had been sent is processed here too."""
        deadline = time.monotonic() + CATCH_UP_S
        while any(done < last for done, last in zip(self.task.processed, sent, strict=True)):
            if self._over.wait(0.002) or time.monotonic() > deadline:
                return
        self.timeline["recovered"] = time.time()
        self.on_recovered()

    def _all_claimed(self) -> list[Standing]:
        """The answers of all inputs' producers, none of which has been replaced meanwhile: the
        word of one whose reign is over says nothing about what its successor lets go of."""
        inputs = self.task.spec.inputs
        while True:
            before = [self._links.route(source) for source in inputs]
            answers = [self._claimed(index) for index in range(len(inputs))]
            if before == [self._links.route(source) for source in inputs]:
                return answers

    def _claimed(self, index: int) -> Standing:
        """The answer of an input's producer, as soon as there is one."""
        while not self._over.is_set():
            try:
                return self._upstream.claim(index, self.post.epoch)
            except SiteError:
                self._over.wait(RETRY_S)
        raise Superseded(f"{self.task.spec.name} stands by no more")

    def _announce(self) -> None:
        """To all sites, at once; those that cannot be reached now hear of it from others."""
        output = self.task.spec.output
        if output is None:
            return
        news = {output: Route(self._name, self.post.epoch, None, self.post.epoch)}
        self._links.learn(news)
        for site in self._peers.names():
            if site != self._name:
                threading.Thread(target=self._tell, args=(site, news), daemon=True).start()

    def _tell(self, site: str, news: dict[str, Route]) -> None:
        routes = {stream: [r.site, r.epoch, r.standby, r.claim] for stream, r in news.items()}
        for _ in range(20):
            try:
                self._peers[site].call("routes", timeout_s=1.0, routes=routes)
                return
            except AnabranchError:
                if self._over.wait(0.5):
                    return

    def _retire(self) -> None:
        if self.state != "retired":
            self.state = "retired"
            self.close()
            self.on_retired()

    def report(self) -> dict[str, Any]:
        """For the status of the task."""
        return {
            "guard": self.state,
            "protects": self.protects,
            "batch": self._batches[0],
            "tuning": self._tuning.report(),
            "codec": self.post.codec,
            "primary": self.post.primary,
            "kept_inputs": self._secondary.kept,
            "jumps": self.jumps,
            "received": list(self._secondary.received),
            "beaten": self.beaten,
            "timeline": dict(self.timeline),
        }


def _cost(answer: dict[str, float]) -> Cost:
    return Cost(answer["fixed_ms"] / 1e3, answer["per_tuple_us"] / 1e6)


def _same(batch: Batch[pa.RecordBatch]) -> Batch[pa.RecordBatch]:
    return batch
