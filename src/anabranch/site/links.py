"""A site's side of its links: following inputs, acks in both directions, watching for silence."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

from anabranch.config.cluster import Cluster
from anabranch.errors import AnabranchError, Gap, SiteError, StaleEpoch, Superseded
from anabranch.link.codec import Unpack
from anabranch.link.emulation import Emulation
from anabranch.link.outlet import LiveOutlet
from anabranch.link.peer import Peers
from anabranch.link.subscription import Batches, Receiver, Subscription
from anabranch.plan.tasks import Input
from anabranch.site.acks import Ack, AckSender
from anabranch.site.points import PointsFile
from anabranch.site.readers import ReadersFile
from anabranch.site.task import Task
from anabranch.stream.restart import point_of
from anabranch.stream.routes import Route, Routes

LEASE_S = 30.0
"""How long a stream keeps its tuples for a program that does not follow it."""


class Links:
    """Links of the site `name`, whose `outlets` and `tasks` it looks at and never changes.

    An input produced on the same site is followed and acknowledged the same way, without the
    network in between.
    """

    def __init__(
        self,
        name: str,
        cluster: Cluster,
        peers: Peers,
        outlets: Mapping[str, LiveOutlet],
        tasks: Mapping[str, Task],
        points: PointsFile,
        readers: ReadersFile,
    ) -> None:
        self._name = name
        self._cluster = cluster
        self._peers = peers
        self._outlets = outlets
        self._tasks = tasks
        self._points = points
        self._readers = readers
        self.routes = Routes()
        self.on_superseded: Callable[[Task], None] = lambda task: None
        self.on_behind: Callable[[Task, Gap], None] = Task.fail
        self._subscriptions: dict[str, list[Subscription]] = {}
        self._senders: dict[str, AckSender] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        watch = threading.Thread(target=self._watch, name=f"{name}-watch", daemon=True)
        watch.start()

    def close(self) -> None:
        self._closed.set()
        with self._lock:
            for sender in self._senders.values():
                sender.close()

    def report(self, task: Task) -> dict[str, Any]:
        links = self._subscriptions.get(task.spec.name, [])
        problems = [link.problem for link in links if link.problem]
        return {"problem": "; ".join(problems), "breaks": sum(link.breaks for link in links)}

    # -- inputs ----------------------------------------------------------------------------------

    def follow_inputs(self, task: Task) -> None:
        """Feed the inlets of a task that has been started."""
        links = []
        for index, (source, inlet) in enumerate(zip(task.spec.inputs, task.inlets, strict=True)):
            follow = partial(self._follow, task, index)
            inlet.expect(self.route(source).epoch)
            links.append(self.subscription(source, inlet, follow, partial(self._failed, task)))
            for site in self.route(source).sites:
                self._sender(site)
        self._subscriptions[task.spec.name] = links
        for link in links:
            link.start()
        for source in task.spec.inputs:  # upstream should know its restart point from the start
            for site in self.route(source).sites:
                self._sender(site).arrived()

    def subscription(
        self,
        source: Input,
        receiver: Receiver,
        follow: Callable[[int], Batches],
        on_failure: Callable[[AnabranchError], None],
        decode: Unpack = lambda batch: batch,
    ) -> Subscription:
        """Brings `source`, from wherever it is produced, to a receiver at this site."""

        def emulation() -> Emulation:
            return self._emulation(self.route(source).site, self._name)

        return Subscription(receiver, follow, emulation, on_failure, decode)

    def _failed(self, task: Task, error: AnabranchError) -> None:
        if isinstance(error, Superseded):
            self.on_superseded(task)
        elif isinstance(error, Gap) and task.epoch:
            self.on_behind(task, error)
        else:
            task.fail(error)

    # -- routes ----------------------------------------------------------------------------------

    def route(self, source: Input) -> Route:
        """Where an input is produced now: where it was deployed, unless we heard otherwise."""
        return self.routes[source.stream] or Route(source.site)

    def learn(self, news: Mapping[str, Route]) -> None:
        """Streams are produced or backed up elsewhere: follow them there, send acks there, and stop
        what we produce ourselves though our epoch is over."""
        before = {stream: self.routes[stream] for stream in news}
        for stream, route in self.routes.learn(news).items():
            for task in list(self._tasks.values()):
                self._tell(task, stream, route, before[stream])

    def _tell(self, task: Task, stream: str, route: Route, before: Route | None) -> None:
        if task.spec.output == stream and task.rules and task.epoch < route.epoch:
            self.on_superseded(task)
        links = self._subscriptions.get(task.spec.name, [])
        for source, inlet, link in zip(task.spec.inputs, task.inlets, links, strict=False):
            if source.stream == stream:
                inlet.expect(route.epoch)
                for site in route.sites:
                    self._sender(site)
                if route.site != (before.site if before else source.site):
                    link.reroute()

    # -- leaving ---------------------------------------------------------------------------------

    def unfollow(self, task: Task) -> None:
        for link in self._subscriptions.pop(task.spec.name, ()):
            link.close()

    def leave(self, task: Task) -> None:
        """Let go of the inputs, so that other consumers of them are not held up."""
        for index, source in enumerate(task.spec.inputs):
            try:
                self._detach_at(source, task.spec.consumer(index), task.epoch)
            except AnabranchError:
                continue  # a site that is gone keeps nothing for us either

    def detach(self, stream: str, consumer: str, epoch: int | None = None) -> None:
        outlet = self._outlets.get(stream)
        if outlet:
            outlet.detach(consumer, epoch)

    def _follow(self, task: Task, index: int, after: int) -> Batches:
        source, consumer = task.spec.inputs[index], task.spec.consumer(index)
        site = self.route(source).site
        if site != self._name:
            return self._peers[site].follow(source.stream, consumer, after, task.epoch)
        return self.outlet(source.stream).follow(consumer, after, self._closed.is_set, task.epoch)

    def outlet(self, stream: str) -> LiveOutlet:
        outlet = self._outlets.get(stream)
        if outlet is None:
            raise SiteError(f"site {self._name} does not produce stream {stream}")
        return outlet

    def _detach_at(self, source: Input, consumer: str, epoch: int) -> None:
        request: dict[str, Any] = {"stream": source.stream, "consumer": consumer, "epoch": epoch}
        for site in self.route(source).sites:
            if site == self._name:
                self.detach(**request)
            else:
                self._peers[site].call("detach", timeout_s=2.0, **request)

    def _emulation(self, sender: str, receiver: str) -> Emulation:
        link = self._cluster.link(sender, receiver)
        return Emulation(link.delay_us / 1e6, link.jitter_us / 1e6, link.bandwidth or 0.0)

    def _watch(self) -> None:
        """Break connections that have gone silent, so that they are made anew."""
        interval_s = self._cluster.heartbeat_interval_us / 1e6
        limit_s = max(1.0, interval_s * self._cluster.missed_heartbeats)
        while not self._closed.wait(interval_s):
            for outlet in list(self._outlets.values()):
                outlet.expire(LEASE_S)
            self._readers.save(self._outlets)
            for links in list(self._subscriptions.values()):
                for link in links:
                    link.check_silence(limit_s)

    # -- acks ------------------------------------------------------------------------------------

    def arrived(self, task: Task, index: int) -> None:
        """Tuples have come in; if they are many, the producer hears of it before its time."""
        if task.inlets[index].ack_overdue and task.role == "primary":
            self._sender(self.route(task.spec.inputs[index]).site).arrived()

    def released(self, task: Task) -> None:
        """Downstream acks have moved the task's restart point. A sink has no downstream: its
        restart point moves with every write and is told with the next periodic ack."""
        if task.outlet and task.role == "primary":
            for source in task.spec.inputs:
                for site in self.route(source).sites:
                    self._sender(site).released()

    def take_acks(self, acks: Iterable[Ack]) -> list[str]:
        """The consumers among them that have been replaced and ought to know."""
        superseded = []
        for ack in acks:
            try:
                self._take(ack)
            except Superseded:
                superseded.append(ack["consumer"])
            except StaleEpoch:
                for task in list(self._tasks.values()):
                    if task.spec.output == ack["stream"] and task.rules:
                        self.on_superseded(task)
        return superseded

    def _take(self, ack: Ack) -> None:
        outlet = self._outlets.get(ack["stream"])
        if outlet is None:
            return
        reign = ack.get("reign", 0)
        if ack["received"] is not None:
            outlet.level0(ack["consumer"], ack["received"], ack["epoch"], reign)
        point = point_of(ack["point"])
        outlet.level1(ack["consumer"], point.inputs[ack["index"]], point, reign)

    def _sender(self, site: str) -> AckSender:
        with self._lock:
            if site not in self._senders:
                self._senders[site] = AckSender(
                    site,
                    self._cluster.ack_interval_us / 1e6,
                    partial(self._collect, site),
                    partial(self._send, site),
                    self._emulation(self._name, site),
                )
            return self._senders[site]

    def _collect(self, site: str, level0: bool) -> list[Ack]:
        tasks = [task for task in list(self._tasks.values())
                 if task.state in ("running", "done") and task.role == "primary"]  # fmt: skip
        acks = [
            _ack(task, index, level0)
            for task in tasks
            for index, source in enumerate(task.spec.inputs)
            if site in self.route(source).sites
        ]
        self._points.save((task.spec.name, task) for task in tasks)
        return acks

    def _send(self, site: str, acks: list[Ack]) -> None:
        if site == self._name:
            superseded = self.take_acks(acks)
        else:
            superseded = self._peers[site].call("acks", timeout_s=2.0, acks=acks)
        replaced = {(ack["consumer"], ack["reign"]) for ack in acks
                    if ack["consumer"] in superseded}  # fmt: skip
        for task in list(self._tasks.values()):
            mine = {(task.spec.consumer(index), task.epoch) for index in range(len(task.inlets))}
            if mine & replaced:
                self.on_superseded(task)


def _ack(task: Task, index: int, level0: bool) -> Ack:
    point, inlet = task.restart_point(), task.inlets[index]
    return {
        "stream": task.spec.inputs[index].stream,
        "consumer": task.spec.consumer(index),
        "epoch": inlet.epoch,
        "reign": task.epoch,
        "received": inlet.acked() if level0 else None,
        "index": index,
        "point": asdict(point),
    }
