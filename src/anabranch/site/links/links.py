"""A site's side of its links: following inputs, who produces what, acks in both directions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from anabranch.config.cluster import ClusterConfig
from anabranch.errors import AnabranchError, Gap, SiteError, StaleEpoch, Superseded
from anabranch.link.emulation import EmulatedNetwork, Emulation, Slowed
from anabranch.link.inlet import LiveInlet
from anabranch.link.messages import Ack, Acks, Detach, Follow, Ship
from anabranch.link.network import Connection, Network
from anabranch.link.outlet import LiveOutlet
from anabranch.link.subscription import Receiver, Subscription
from anabranch.plan.tasks import TaskInput
from anabranch.runtime.base import Runtime
from anabranch.site.links.acks import AckSender
from anabranch.site.links.readers import ReadersFile
from anabranch.site.tasks.restart_points import PointsFile, PointsKeeper
from anabranch.site.tasks.task import Task
from anabranch.stream.batch import Batch
from anabranch.stream.restart import gather
from anabranch.stream.routes import Route, Routes

LEASE_S = 30.0
"""How long a stream keeps its tuples for a program that does not follow it."""
CALL_S = 2.0
LEAST_SILENCE_S = 1.0
Readers = list[tuple[Task, int, str]]
"""Task, which of its inputs, and the name under which it reads that; not all names differ."""


class Links:
    """Links of the site `name`, whose `outlets` and `tasks` it looks at and never changes.
    `superseded` is called with a task that another site runs now, `behind` with a task whose
    producer has released what it would take next.
    """

    def __init__(
        self,
        name: str,
        cluster: ClusterConfig,
        runtime: Runtime,
        network: Network,
        outlets: Mapping[str, LiveOutlet[Any]],
        tasks: Mapping[str, Task],
        points: PointsFile,
        readers: ReadersFile,
        superseded: Callable[[Task], None],
        behind: Callable[[Task, Gap], None],
    ) -> None:
        self._name = name
        self._cluster = cluster
        self._runtime = runtime
        self._network = network
        self.emulated = EmulatedNetwork(cluster)
        self._outlets = outlets
        self._tasks = tasks
        self.keeper = PointsKeeper(runtime, points)
        self._readers = readers
        self._superseded = superseded
        self._behind = behind
        self.routes = Routes()
        self._interval_s = cluster.heartbeat_interval_us / 1e6
        self._missed = cluster.missed_heartbeats
        self._subscriptions: dict[str, list[Subscription[Any]]] = {}
        self._senders: dict[str, AckSender] = {}
        self._by_site: dict[str, Readers] | None = None
        """See `_readers_of`; None when that may have changed."""
        self._watching = runtime.supervise(f"leases of {name}", self._watch)

    def close(self) -> None:
        self._watching.cancel()
        for sender in self._senders.values():
            sender.close()

    def troubles(self, task: Task) -> tuple[str, int]:
        """The reason why its inputs do not come, and how often their links have broken."""
        links = self._subscriptions.get(task.spec.name, [])
        problems = [link.problem for link in links if link.problem]
        return "; ".join(problems), sum(link.breaks for link in links)

    # -- inputs ----------------------------------------------------------------------------------

    def follow_inputs(self, task: Task) -> None:
        """Feeds the inlets of a task that has been started, unless it needs nothing any more."""
        self.unfollow(task)
        if not task.restart_point().finished:
            self._subscriptions[task.spec.name] = self._links_of(task)
        for source in task.spec.inputs:  # upstream should know its restart point from the start
            for site in self.route(source).sites:
                self._sender(site).tell_all()

    def _links_of(self, task: Task) -> list[Subscription[Any]]:
        links = []
        for index, (source, inlet) in enumerate(zip(task.spec.inputs, task.inlets, strict=True)):
            inlet.expect(self.route(source).epoch)
            failed = partial(self._failed, task)
            receiver = _Input(self, task, index, inlet)
            request = partial(self._follow, task, index)
            silence_s = self._silence_s(task.spec.recovery_us)
            links.append(self.subscribe(source, receiver, request, failed, silence_s))
        return links

    def subscribe(
        self,
        source: TaskInput,
        receiver: Receiver[Any],
        request: Callable[[int], Follow | Ship],
        on_failure: Callable[[AnabranchError], None],
        silence_s: float | None = None,
    ) -> Subscription[Any]:
        """Brings `source`, from wherever it is produced, to a receiver at this site."""
        silence_s = silence_s or self._silence_s()

        def connect(after: int) -> Connection:
            site = self.route(source).site
            connection = self._network.connect(site, request(after))
            if emulation := self._emulation(site, self._name):
                return Slowed(self._runtime, connection, emulation, silence_s)
            return connection

        return Subscription(self._runtime, receiver, connect, on_failure, silence_s)

    def _silence_s(self, recovery_us: int | None = None) -> float:
        """The time after which a link without even a heartbeat counts as broken. A link that comes
        and goes may answer the beats of a standby and yet bring nothing for seconds, since TCP
        waits twice as long each time before it sends again: where a RECOVERY has to hold, another
        connection is tried in half of that time.
        """
        silence_s = self._interval_s * self._missed
        if recovery_us is not None:
            silence_s = min(silence_s, max(recovery_us / 2e6, 2 * self._interval_s))
        return max(LEAST_SILENCE_S, silence_s)

    def _follow(self, task: Task, index: int, after: int) -> Follow:
        spec = task.spec
        stream, consumer = spec.inputs[index].stream, spec.consumer(index)
        return Follow(stream, consumer, after, task.epoch, spec.born)

    def _failed(self, task: Task, error: AnabranchError) -> None:
        if isinstance(error, Superseded):
            self._superseded(task)
        elif isinstance(error, Gap) and task.epoch:
            self._behind(task, error)
        else:
            task.fail(error)

    def unfollow(self, task: Task) -> None:
        self._by_site = None
        for link in self._subscriptions.pop(task.spec.name, ()):
            link.close()

    # -- routes ----------------------------------------------------------------------------------

    def route(self, source: TaskInput) -> Route:
        """The place where an input is produced now: where it was deployed, unless we learned
        otherwise.
        """
        return self.routes[source.stream] or Route(source.site)

    def learn(self, news: Mapping[str, Route]) -> dict[str, Route]:
        """Learns that streams are produced or backed up elsewhere: follows them there, sends acks
        there, and stops what we produce ourselves though our epoch is over. Returns the routes that
        were new.
        """
        before = {stream: self.routes[stream] for stream in news}
        fresh = self.routes.learn(news)
        self._by_site = None
        for stream, route in fresh.items():
            for task in list(self._tasks.values()):
                self._tell(task, stream, route, before[stream])
        return fresh

    def _tell(self, task: Task, stream: str, route: Route, before: Route | None) -> None:
        if task.spec.output == stream and task.produces and task.epoch < route.epoch:
            self._superseded(task)
        links = self._subscriptions.get(task.spec.name, [])
        for source, inlet, link in zip(task.spec.inputs, task.inlets, links, strict=False):
            if source.stream == stream:
                inlet.expect(route.epoch)
                if route.site != (before.site if before else source.site):
                    link.reroute()
        # One that has ended follows nothing, but a new producer would wait for it.
        if task.produces and any(source.stream == stream for source in task.spec.inputs):
            for site in route.sites:
                self._sender(site).tell_all()

    # -- leaving ---------------------------------------------------------------------------------

    async def leave(self, task: Task) -> None:
        """Lets go of the inputs, so that other consumers of them are not delayed. A site that is
        gone keeps nothing for us either.
        """
        spec = task.spec
        await self._runtime.outcomes(
            [
                self._network.call(
                    site, Detach(source.stream, spec.consumer(index), task.epoch, spec.born), CALL_S
                )
                for index, source in enumerate(spec.inputs)
                for site in self.route(source).sites
            ]
        )

    def replaceable(self, task: Task) -> bool:
        """Whether a site stands by for it, or can be posted to."""
        route = self.routes[task.spec.output] if task.spec.output else None
        return task.epoch > 0 or bool(route and route.standby)

    def detach(self, stream: str, consumer: str, epoch: int | None = None, born: int = 0) -> None:
        if outlet := self._outlets.get(stream):
            outlet.detach(consumer, epoch, born)

    def outlet(self, stream: str) -> LiveOutlet[Any]:
        outlet = self._outlets.get(stream)
        if outlet is None:
            raise SiteError(f"site {self._name} does not produce stream {stream}")
        return outlet

    def _emulation(self, sender: str, receiver: str) -> Emulation:
        return self.emulated.link(sender, receiver)

    async def _watch(self) -> None:
        """Forgets programs that have gone; writes down the others for a restart, and the points
        where readers would restart: if they die with us, we may be the only ones who come back.
        """
        while True:
            await self._runtime.sleep(self._interval_s)
            for outlet in list(self._outlets.values()):
                outlet.look(LEASE_S)
            await self.keeper.keep(gather(one.readers() for one in self._outlets.values()))
            held = self._readers.news(self._outlets)
            if held is not None:
                await self._runtime.blocking(self._readers.save, held)

    # -- acks ------------------------------------------------------------------------------------

    def arrived(self, task: Task, index: int) -> None:
        """Takes note that tuples have come in; if there are many, the producer learns of it
        early.
        """
        if task.inlets[index].ack_overdue and task.role == "primary":
            self._sender(self.route(task.spec.inputs[index]).site).arrived()

    def released(self, task: Task) -> None:
        """Takes note that downstream acks have moved the task's restart point. A sink has no
        downstream: its restart point moves with every write and is told with the next periodic ack.
        """
        ended = task.restart_point().finished
        if (task.outlet or ended) and task.role == "primary":
            for source in task.spec.inputs:
                for site in self.route(source).sites:
                    self._sender(site).released()

    def take_acks(self, acks: Iterable[Ack]) -> list[tuple[str, int]]:
        """Takes the acks; returns those whose senders have been replaced and ought to know."""
        superseded = []
        for ack in acks:
            try:
                self._take(ack)
            except Superseded:
                superseded.append((ack.consumer, ack.own))
            except StaleEpoch:
                for task in list(self._tasks.values()):
                    if task.spec.output == ack.stream and task.produces:
                        self._superseded(task)
        return superseded

    def _take(self, ack: Ack) -> None:
        if outlet := self._outlets.get(ack.stream):
            if ack.received is not None:
                outlet.level0(ack.consumer, ack.received, ack.epoch, ack.own, ack.born)
            position = ack.point.inputs[ack.index]
            outlet.level1(ack.consumer, position, ack.point, ack.own, ack.born)

    def _sender(self, site: str) -> AckSender:
        if site not in self._senders:
            self._senders[site] = AckSender(
                self._runtime,
                site,
                self._cluster.ack_interval_us / 1e6,
                partial(self._collect, site),
                partial(self._send, site),
                self._emulation(self._name, site),
            )
        return self._senders[site]

    def _collect(self, site: str, level0: bool) -> list[Ack]:
        return [
            _ack(task, index, consumer, level0)
            for task, index, consumer in self._readers_of().get(site, ())
            if task.state in ("running", "done")
            and task.role == "primary"
            and self._tasks.get(task.spec.name) is task
        ]

    def _readers_of(self) -> dict[str, Readers]:
        """Site → the inputs here that it produces or stands by to produce."""
        if self._by_site is None:
            self._by_site = {}
            for task in self._tasks.values():
                for index, source in enumerate(task.spec.inputs):
                    reader = task, index, task.spec.consumer(index)
                    for site in self.route(source).sites:
                        self._by_site.setdefault(site, []).append(reader)
        return self._by_site

    async def _send(self, site: str, acks: list[Ack]) -> None:
        """Sends the acks. Points are kept before they are told: whoever learns of one releases what
        lies before it.
        """
        tasks = {consumer: task for task, _, consumer in self._readers_of().get(site, ())}
        await self.keeper.keep(
            {tasks[ack.consumer].spec.name: ack.point for ack in acks if ack.consumer in tasks}
        )
        for consumer, epoch in await self._network.call(site, Acks(tuple(acks)), CALL_S):
            task = tasks.get(consumer)
            if task and task.epoch == epoch and self._tasks.get(task.spec.name) is task:
                self._superseded(task)

    async def keep_points(self, tasks: Sequence[Task]) -> None:
        await self.keeper.keep({task.spec.name: task.restart_point() for task in tasks})


class _Input:
    """An inlet as its subscription sees it: its task learns of whatever comes, and perhaps its
    producer.
    """

    def __init__(self, links: Links, task: Task, index: int, inlet: LiveInlet[Any]) -> None:
        self.stream = inlet.stream
        self.space = inlet.space
        self.close = inlet.close
        self._links = links
        self._task = task
        self._index = index
        self._inlet = inlet

    @property
    def received(self) -> int:
        return self._inlet.received

    async def offer(self, batch: Batch[Any]) -> None:
        await self._inlet.offer(batch)
        if self._task.state == "done":
            self._task.discard_inputs()
        elif self._inlet.ready:
            self._task.arrived()
            self._links.arrived(self._task, self._index)


def _ack(task: Task, index: int, consumer: str, level0: bool) -> Ack:
    inlet = task.inlets[index]
    return Ack(
        stream=task.spec.inputs[index].stream,
        consumer=consumer,
        epoch=inlet.epoch,
        received=inlet.acked() if level0 else None,
        index=index,
        point=task.restart_point(),
        own=task.epoch,
        born=task.spec.born,
    )
