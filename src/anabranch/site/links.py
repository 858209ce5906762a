"""A site's side of its links: following inputs, acks in both directions, watching for silence."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from anabranch.config.cluster import Cluster
from anabranch.errors import AnabranchError, SiteError, StaleEpoch
from anabranch.link.emulation import Emulation
from anabranch.link.outlet import LiveOutlet
from anabranch.link.peer import Peers
from anabranch.link.subscription import Batches, Subscription
from anabranch.plan.tasks import Input
from anabranch.site.acks import Ack, AckSender
from anabranch.site.points import PointsFile
from anabranch.site.readers import ReadersFile
from anabranch.site.task import Task
from anabranch.stream.batch import START_WATERMARK
from anabranch.stream.restart import RestartPoint

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
            follow = partial(self._follow, task.spec.consumer(index), source)
            emulation = self._emulation(source.site, self._name)
            links.append(Subscription(inlet, follow, emulation, task.fail))
            self._sender(source.site)
        self._subscriptions[task.spec.name] = links
        for link in links:
            link.start()

    def unfollow(self, task: Task) -> None:
        for link in self._subscriptions.pop(task.spec.name, ()):
            link.close()

    def leave(self, task: Task) -> None:
        """Let go of the inputs, so that other consumers of them are not held up."""
        for index, source in enumerate(task.spec.inputs):
            try:
                self._detach_at(source, task.spec.consumer(index))
            except AnabranchError:
                continue  # a site that is gone keeps nothing for us either

    def detach(self, stream: str, consumer: str) -> None:
        outlet = self._outlets.get(stream)
        if outlet:
            outlet.detach(consumer)

    def _follow(self, consumer: str, source: Input, after: int, epoch: int) -> Batches:
        if source.site != self._name:
            return self._peers[source.site].follow(source.stream, consumer, after, epoch)
        outlet = self._outlets.get(source.stream)
        if outlet is None:
            raise SiteError(f"site {self._name} does not produce stream {source.stream}")
        return outlet.follow(consumer, after, self._closed.is_set)

    def _detach_at(self, source: Input, consumer: str) -> None:
        if source.site == self._name:
            self.detach(source.stream, consumer)
        else:
            peer = self._peers[source.site]
            peer.call("detach", timeout_s=2.0, stream=source.stream, consumer=consumer)

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
        if task.inlets[index].ack_overdue:
            self._sender(task.spec.inputs[index].site).arrived()

    def released(self, task: Task) -> None:
        """Downstream acks have moved the task's restart point. A sink has no downstream: its
        restart point moves with every write and is told with the next periodic ack."""
        if task.outlet:
            for source in task.spec.inputs:
                self._sender(source.site).released()

    def take_acks(self, acks: Iterable[Ack]) -> None:
        """Raises the last StaleEpoch, after every other ack of the message was taken."""
        stale: StaleEpoch | None = None
        for ack in acks:
            try:
                self._take(ack)
            except StaleEpoch as error:
                stale = error
        if stale:
            raise stale

    def _take(self, ack: Ack) -> None:
        outlet = self._outlets.get(ack["stream"])
        if outlet is None:
            return
        if ack["received"] is not None:
            outlet.level0(ack["consumer"], ack["received"], ack["epoch"])
        instant = ack.get("instant", START_WATERMARK)
        point = RestartPoint(tuple(ack["inputs"]), ack["output"], instant)
        outlet.level1(ack["consumer"], point.inputs[ack["index"]], point)

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
        tasks = [task for task in list(self._tasks.values()) if task.state in ("running", "done")]
        acks = [
            _ack(task, index, level0)
            for task in tasks
            for index, source in enumerate(task.spec.inputs)
            if source.site == site
        ]
        self._points.save((task.spec.name, task) for task in tasks)
        return acks

    def _send(self, site: str, acks: list[Ack]) -> None:
        if site == self._name:
            self.take_acks(acks)
        else:
            self._peers[site].call("acks", timeout_s=2.0, acks=acks)


def _ack(task: Task, index: int, level0: bool) -> Ack:
    point, inlet = task.restart_point(), task.inlets[index]
    return {
        "stream": task.spec.inputs[index].stream,
        "consumer": task.spec.consumer(index),
        "epoch": inlet.epoch,
        "received": inlet.acked() if level0 else None,
        "inputs": list(point.inputs),
        "index": index,
        "output": point.output,
        "instant": point.instant,
    }
