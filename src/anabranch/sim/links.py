"""`site.links` without threads: following inputs, routes, acks in both directions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from anabranch.errors import AnabranchError, Gap, SiteError, StaleEpoch, Superseded
from anabranch.sim.acks import Ack, AckSender, ack_of
from anabranch.sim.clock import Steps
from anabranch.sim.network import Connection
from anabranch.sim.rows import RowBatch
from anabranch.sim.subscription import Subscription
from anabranch.sim.task import SimTask
from anabranch.stream.routes import Route, Routes

if TYPE_CHECKING:
    from anabranch.sim.site import SimSite


class _Feed:
    """An inlet of a running task as its subscription sees it."""

    def __init__(self, site: SimSite, task: SimTask, index: int) -> None:
        self._site, self._task, self._index = site, task, index

    @property
    def received(self) -> int:
        return self._task.inlets[self._index].received

    def offer(self, batch: RowBatch) -> None:
        self._task.inlets[self._index].offer(batch)
        self._site.consider(self._task)


class Links:
    def __init__(self, site: SimSite) -> None:
        self._site = site
        self.routes = Routes()
        self.subscriptions: dict[str, list[Subscription]] = {}
        self._senders: dict[str, AckSender] = {}

    # -- inputs ----------------------------------------------------------------------------------

    def follow_inputs(self, task: SimTask) -> None:
        links = []
        for index in range(len(task.inlets)):
            route = self.route(task, index)
            task.inlets[index].epoch = max(task.inlets[index].epoch, route.epoch)
            links.append(self._subscribe(task, index))
            for site in route.sites:
                self._sender(site)
        self.subscriptions[task.spec.name] = links

    def _subscribe(self, task: SimTask, index: int) -> Subscription:
        site = self._site

        def follow(after: int) -> Connection:
            request = task.spec.consumer(index), after, task.epoch
            return site.connect(task, index, lambda outlet, link: outlet.follow(link, *request))

        def failed(error: AnabranchError) -> None:
            if isinstance(error, Superseded):
                site.superseded(task)
            elif isinstance(error, Gap) and task.spec.kind is not None:
                site.process.spawn(self._rejoin(task, index))
            else:
                task.fail(error)

        return Subscription(site, _Feed(site, task, index), follow, failed)

    def _rejoin(self, task: SimTask, index: int) -> Steps:
        """A producer has let go of tuples that a ruling task lacks: an earlier ruler got further,
        and its acks came late. Go on where that one would have."""
        told = task.restart_point()
        with suppress(SiteError):
            _, told = yield from self._standing(task, index)
        if self._site.tasks.get(task.spec.name) is not task:
            return
        self.unfollow(task)
        if told is None or told.inputs[index] <= task.inlets[index].received:
            self._site.log(f"{task.spec.name} of epoch {task.epoch} cannot go on")
            self._site.discard(task)  # somebody knows more, who is not there: it is posted anew
            return
        task.learn(told)
        self._site.log(f"{task.spec.name} goes on at {task.restart_point()}")
        task.restart(task.restart_point(), tuple(() for _ in task.inlets))
        self.follow_inputs(task)

    def _standing(self, task: SimTask, index: int) -> Steps:
        stream, consumer = task.spec.inputs[index], task.spec.consumer(index)
        target = self.route(task, index).site
        if target == self._site.name:
            return self._site.outlet(stream).standing(consumer)
        return (
            yield from self._site.call(
                target, "standing", self._site.pace.call, stream=stream, consumer=consumer
            )
        )

    def unfollow(self, task: SimTask) -> None:
        for link in self.subscriptions.pop(task.spec.name, ()):
            link.close()

    # -- routes ----------------------------------------------------------------------------------

    def route(self, task: SimTask, index: int) -> Route:
        return self.routes[task.spec.inputs[index]] or Route(task.sites[index])

    def learn(self, news: Mapping[str, Route]) -> None:
        before = {stream: self.routes[stream] for stream in news}
        for stream, route in self.routes.learn(news).items():
            for task in list(self._site.tasks.values()):
                self._tell(task, stream, route, before[stream])

    def _tell(self, task: SimTask, stream: str, route: Route, before: Route | None) -> None:
        if task.spec.name == stream and task.role == "primary" and task.epoch < route.epoch:
            self._site.superseded(task)
        links = self.subscriptions.get(task.spec.name, [])
        for index, link in enumerate(links):
            if task.spec.inputs[index] == stream:
                inlet = task.inlets[index]
                inlet.epoch = max(inlet.epoch, route.epoch)
                for site in route.sites:
                    self._sender(site)
                if route.site != (before.site if before else task.sites[index]):
                    link.reroute()

    # -- acks ------------------------------------------------------------------------------------

    def released(self, task: SimTask) -> None:
        if task.outlet and task.role == "primary":
            for index in range(len(task.inlets)):
                for site in self.route(task, index).sites:
                    self._sender(site).released()

    def take_acks(self, acks: Iterable[Ack]) -> list[str]:
        superseded = []
        for ack in acks:
            try:
                self._take(ack)
            except Superseded:
                superseded.append(ack.consumer)
            except StaleEpoch:
                for task in list(self._site.tasks.values()):
                    if task.spec.name == ack.stream and task.role == "primary":
                        self._site.superseded(task)
        return superseded

    def _take(self, ack: Ack) -> None:
        outlet = self._site.outlets.get(ack.stream)
        if outlet is None:
            return
        if ack.received is not None:
            outlet.outlet.level0(ack.consumer, ack.received, ack.epoch, ack.reign)
        outlet.level1(ack.consumer, ack.point.inputs[ack.index], ack.point, ack.reign)

    def _sender(self, site: str) -> AckSender:
        if site not in self._senders:
            self._senders[site] = AckSender(
                self._site, partial(self.collect, site), partial(self.send, site)
            )
        return self._senders[site]

    def collect(self, site: str, level0: bool) -> list[Ack]:
        tasks = [task for task in self._site.tasks.values()
                 if task.state in ("running", "done") and task.role == "primary"]  # fmt: skip
        acks = [
            ack_of(task, index, level0)
            for task in tasks
            for index in range(len(task.inlets))
            if site in self.route(task, index).sites
        ]
        self._site.save_points(tasks)
        return acks

    def send(self, site: str, acks: list[Ack]) -> Steps:
        if site == self._site.name:
            superseded = self.take_acks(acks)
        else:
            superseded = yield from self._site.call(site, "acks", self._site.pace.call, acks=acks)
        for task in list(self._site.tasks.values()):
            names = {task.spec.consumer(index) for index in range(len(task.inlets))}
            if not names.isdisjoint(superseded):
                self._site.superseded(task)
