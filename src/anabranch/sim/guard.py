"""`site.guard` without threads: stands by for a task, watches its primary, and takes over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.errors import AnabranchError, Gap, SiteError, Superseded
from anabranch.sim.clock import Signal, Steps
from anabranch.sim.network import Connection, Refused
from anabranch.sim.rows import RowBatch, Rows
from anabranch.sim.subscription import Subscription
from anabranch.sim.task import SimTask
from anabranch.standby.detector import Beat, Detector
from anabranch.standby.secondary import Action, Claim, Feed, Secondary
from anabranch.stream.restart import RestartPoint
from anabranch.stream.routes import Route

if TYPE_CHECKING:
    from anabranch.sim.site import SimSite

RETRY = 25


@dataclass(frozen=True, slots=True)
class Post:
    primary: str
    epoch: int
    batch: int


class _Collector:
    """One input of a standby as its subscription sees it."""

    def __init__(self, guard: Guard, index: int) -> None:
        self._guard, self._index = guard, index

    @property
    def received(self) -> int:
        return self._guard.received[self._index]

    def offer(self, batch: RowBatch) -> None:
        self._guard.offer(self._index, batch)


class Guard:
    def __init__(self, site: SimSite, task: SimTask, point: RestartPoint, post: Post) -> None:
        self.task = task
        self.post = post
        self.state = "standby"
        self._site = site
        self._secondary: Secondary[Rows] = Secondary(point)
        self._heard: set[int] = set()
        task.lazy = site.world.rng.random() < 0.5
        self._over = False
        self._asked = False
        self._wake = Signal()
        self._subscriptions = [self._subscribe(index) for index in range(len(task.inlets))]
        site.process.spawn(self._watch())

    def close(self) -> None:
        self._over = self._asked = True
        self._wake.notify()
        for link in self._subscriptions:
            link.close()

    @property
    def protects(self) -> bool:
        return self.state == "standby" and len(self._heard) == len(self.task.inlets)

    @property
    def received(self) -> tuple[int, ...]:
        return self._secondary.received

    # -- inputs ----------------------------------------------------------------------------------

    def _subscribe(self, index: int) -> Subscription:
        def ship(after: int) -> Connection:
            request = self.task.spec.consumer(index), after, self.post.epoch, self.post.batch
            return self._site.connect(
                self.task, index, lambda outlet, link: outlet.ship(link, *request)
            )

        return Subscription(self._site, _Collector(self, index), ship, self._failed)

    def offer(self, index: int, batch: RowBatch) -> None:
        self._perform(self._secondary.offer(index, batch, self.task.idle_at()))
        self.task.learn(self._secondary.point)
        self._heard.add(index)

    def _perform(self, actions: Sequence[Action[Rows]]) -> None:
        for action in actions:
            if isinstance(action, Feed):
                self.task.inlets[action.index].offer(action.batch)
            else:
                self._site.log(f"{self.task.spec.name} begins anew at {action.point}")
                self.task.restart(action.point, action.kept)
            self._site.consider(self.task)

    def _failed(self, error: AnabranchError) -> None:
        if isinstance(error, Superseded):
            self._retire()
        elif self.state == "standby":
            self.task.fail(error)

    def reroute(self, stream: str) -> None:
        for index, link in enumerate(self._subscriptions):
            if self.task.spec.inputs[index] == stream and self.state == "standby":
                link.reroute()

    # -- take-over -------------------------------------------------------------------------------

    def take_over(self) -> None:
        """Now, though the primary may be well."""
        self._asked = True
        self._wake.notify()

    def _watch(self) -> Steps:
        detector = Detector(self._site.pace.missed)
        while not self._asked:
            yield self._wake, self._site.pace.heartbeat
            if self._asked or detector.heard((yield from self._beat())):
                break
        if not self._over:
            yield from self._claim()

    def _beat(self) -> Steps:
        site, pace = self._site, self._site.pace
        try:
            runs = yield from site.call(
                self.post.primary, "beat", pace.heartbeat, task=self.task.spec.name
            )
        except Refused:
            return Beat.REFUSED
        except SiteError:
            return Beat.SILENT
        return Beat.ALIVE if runs else Beat.ABSENT

    def _claim(self) -> Steps:
        self._site.log(f"{self.task.spec.name} claims epoch {self.post.epoch}")
        self.state = "claiming"
        for link in self._subscriptions:
            link.close()
        self.task.take_over()
        self._announce()
        try:
            claims = []
            for index in range(len(self.task.inlets)):
                claims.append((yield from self._claimed(index)))
            while any(link.thread.alive for link in self._subscriptions):
                yield 1
            self._perform(self._secondary.take_over(claims, self.task.idle_at()))
            self.task.learn(self._secondary.point)
        except (Superseded, Gap):  # or somebody knows more, who is not there: it is posted anew
            self._retire()
            return
        if self._over:
            return
        self.state = "primary"
        self._site.log(f"{self.task.spec.name} rules in epoch {self.post.epoch}, {claims}")
        self._site.links.follow_inputs(self.task)
        self._site.consider(self.task)
        self._site.ruling()

    def _claimed(self, index: int) -> Steps:
        name, consumer = self.task.spec.inputs[index], self.task.spec.consumer(index)
        asked = False
        while not self._over:
            if asked:
                yield self._wake, RETRY
            asked = True
            if self._over:
                break
            target = self._site.links.route(self.task, index).site
            try:
                if target == self._site.name:
                    answer = self._site.outlet(name).claim(consumer, self.post.epoch)
                else:
                    answer = yield from self._site.call(
                        target, "claim", self._site.pace.call,
                        stream=name, consumer=consumer, epoch=self.post.epoch,
                    )  # fmt: skip
                if self._site.links.route(self.task, index).site == target:
                    return Claim(*answer)
            except SiteError:
                continue
        raise Superseded(f"{self.task.spec.name} stands by no more")

    def _announce(self) -> None:
        epoch = self.post.epoch
        news = {self.task.spec.name: Route(self._site.name, epoch, None, epoch)}
        self._site.links.learn(news)
        for site in self._site.others():
            self._site.process.spawn(self._tell(site, news))

    def _tell(self, site: str, news: dict[str, Route]) -> Steps:
        for _ in range(20):
            try:
                yield from self._site.call(site, "routes", self._site.pace.call, routes=news)
                return
            except AnabranchError:
                yield 150
                if self._over:
                    return

    def _retire(self) -> None:
        if self.state != "retired":
            self.state = "retired"
            self.close()
            self._site.discard(self.task)
