"""A site's part in protection: the tasks it stands by for, and what others ask of its streams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from anabranch.config.cluster import ClusterConfig
from anabranch.errors import AnabranchError, Gap, SiteError
from anabranch.link.messages import (
    Announce,
    AskConsumer,
    AskPrimary,
    AskTraffic,
    ClaimInput,
    ConsumerState,
    PrimaryAnswer,
    ShipBy,
    StandBy,
    TakeOver,
)
from anabranch.link.meter import Flow
from anabranch.link.network import Network
from anabranch.link.reports import StandbyReport
from anabranch.plan.tasks import TaskSpec
from anabranch.runtime.base import Runtime
from anabranch.site.links.links import Links
from anabranch.site.standby.guard import Guard, GuardHost
from anabranch.site.standby.inputs import Upstream
from anabranch.site.tasks.task import Task, explain
from anabranch.standby.detector import PATIENCE_S, Patience
from anabranch.stream.restart import RestartPoint
from anabranch.stream.routes import Route

RETRY_S = 0.1


class StandbyHost(GuardHost, Protocol):
    """What protection needs of its site, besides what each of its guards does."""

    tasks: dict[str, Task]

    async def install_standby(self, spec: TaskSpec, *, resume: bool = False) -> Task: ...
    async def discard(self, task: Task) -> None: ...


class StandbyGuards:
    """The guards of the site `name`, by the task they stand by for."""

    def __init__(
        self,
        name: str,
        cluster: ClusterConfig,
        runtime: Runtime,
        network: Network,
        host: StandbyHost,
        links: Links,
    ) -> None:
        self._name = name
        self._cluster = cluster
        self._runtime = runtime
        self._network = network
        self._host = host
        self._links = links
        self.guards: dict[str, Guard] = {}
        self._sinks: dict[str, Task] = {}
        """Task that is stood by for → the sink that begins with it."""

    def close(self) -> None:
        for guard in self.guards.values():
            guard.close()

    def report(self, task: Task) -> StandbyReport | None:
        guard = self.guards.get(task.spec.name)
        return guard.report() if guard else None

    def forget(self, task: str) -> list[str]:
        """Forgets a task that is dropped; returns the sinks that were to begin with it and are
        dropped, too.
        """
        guard = self.guards.pop(task, None)
        sink = self._sinks.pop(task, None)
        if guard:
            guard.close()
        return [sink.spec.name] if sink and sink.role == "standby" else []

    # -- standing by -----------------------------------------------------------------------------

    async def stand_by(self, post: StandBy) -> None:
        spec = post.task
        task = await self._host.install_standby(spec)
        if task.outlet:
            task.outlet.start_at(post.point.output)
            for consumer, needs in post.consumers.items():
                task.outlet.attach(
                    consumer,
                    after=needs.after,
                    point=needs.point,
                    epoch=needs.epoch,
                    born=needs.born,
                )
        # Whoever names a recovery time has all done that may be needed for it.
        patience = Patience(0.0 if post.wishes.recovery_s else PATIENCE_S)
        await task.start(post.point, post.epoch, patience)
        if post.sink:
            self._sinks[spec.name] = await self._host.install_standby(post.sink, resume=True)
        if self._host.tasks.get(spec.name) is task:
            self.guards[spec.name] = Guard(
                self._name,
                task,
                post,
                self._cluster,
                self._runtime,
                self._links,
                self._network,
                self._host,
                self,
            )

    async def took_over(self, task: Task) -> None:
        """Takes note of a take-over. A restart would begin at its point from now on. Its sink goes
        on after what it has written, which it knows; the earlier writer can write no more, or only
        what is there already. If nobody waits for it any more, it is being dropped, and so are we.
        """
        sink = self._sinks.get(task.spec.name)
        if sink and task.outlet and sink.spec.name in task.outlet.consumers:
            del self._sinks[task.spec.name]
            released, point_ = task.outlet.consumer_state(sink.spec.name)
            sink.role = "primary"
            point = RestartPoint(
                (released,), released, incarnation=point_.incarnation if point_ else 0
            )
            try:
                await sink.start(point, task.epoch)
                self._links.follow_inputs(sink)
            except AnabranchError as error:
                sink.fail(error)
        await self._links.keep_points([task])
        self._host.tell()

    async def take_over(self, request: TakeOver) -> None:
        if request.task not in self.guards:
            raise SiteError(f"site {self._name} does not stand by for {request.task}")
        self.guards[request.task].take_over()

    # -- the other side --------------------------------------------------------------------------

    async def beat(self, request: AskPrimary) -> PrimaryAnswer:
        task = self._host.tasks.get(request.task)
        if task is None or not task.produces or task.cut_off:
            return PrimaryAnswer(runs=False)
        cost = task.measures.cost()
        return PrimaryAnswer(True, cost.fixed, cost.per_tuple)

    async def claim(self, request: ClaimInput) -> ConsumerState:
        return ConsumerState(
            *self._links.outlet(request.stream).claim(request.consumer, request.epoch)
        )

    async def consumer_state(self, request: AskConsumer) -> ConsumerState:
        return ConsumerState(*self._links.outlet(request.stream).consumer_state(request.consumer))

    async def ship_by(self, request: ShipBy) -> None:
        outlet = self._links.outlet(request.stream)
        outlet.batch_by(request.consumer, request.epoch, request.batch)

    async def measured(self, request: AskTraffic) -> Flow | None:
        return self._links.outlet(request.stream).measured(request.consumer)

    async def announced(self, news: Announce) -> None:
        self.learn(news.routes)

    def learn(self, routes: Mapping[str, Route]) -> None:
        for stream, route in self._links.learn(routes).items():
            for guard in list(self.guards.values()):
                guard.reroute(stream)
                mine = guard.task.spec.output == stream and guard.state == "standby"
                if mine and route.dismisses(self._name, guard.post.epoch):
                    self.superseded(guard.task)

    def behind(self, task: Task, error: Gap) -> None:
        self._runtime.supervise(f"{task.spec.name} goes back", lambda: self._rejoin(task))

    async def _rejoin(self, task: Task) -> None:
        """Lets a task rejoin. A producer has released what the task would take next, on the word of
        its earlier primary: it goes on at the point that came with that word. If somebody who is
        away knows a later point, the task is given up, for a new standby to be posted.
        """
        self._links.unfollow(task)
        upstream = Upstream(task.spec, self._links, self._network)
        while self._host.tasks.get(task.spec.name) is task:
            try:
                states = await upstream.states()
            except SiteError:
                await self._runtime.sleep(RETRY_S)
                continue
            point = task.restart_point()
            for state in states:
                point = point.join(state.restart) if state.restart else point
            if any(p < one.released for p, one in zip(point.inputs, states, strict=True)):
                self.superseded(task)
                return
            inlets = self._host.new_inlets(task)
            for inlet, position in zip(inlets, point.inputs, strict=True):
                inlet.start_at(position)
            try:
                await task.restart(point, inlets)
            except Exception as error:
                task.fail(explain(error, task.spec))
                return
            if self._host.tasks.get(task.spec.name) is task:
                self._links.follow_inputs(task)
                self._host.consider(task)
            return

    def superseded(self, task: Task) -> None:
        """Ends a task that another site runs now: it stops, and releases nothing on the other's
        behalf.
        """
        task.stop()
        self._runtime.spawn(self._host.discard(task), f"{task.spec.name}-superseded")
