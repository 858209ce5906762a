"""Stands by for a task: runs it on what is shipped, watches its primary, and takes over."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, Protocol

from anabranch.config.cluster import ClusterConfig
from anabranch.errors import AnabranchError, Gap, Refused, SiteError, Superseded
from anabranch.link.inlet import LiveInlet
from anabranch.link.messages import Announce, AskPrimary, ConsumerState, PrimaryAnswer, StandBy
from anabranch.link.network import Network
from anabranch.link.reports import Noticed, StandbyReport
from anabranch.link.wire import Unpack
from anabranch.runtime.base import Runtime
from anabranch.runtime.log import note
from anabranch.site.links.links import Links
from anabranch.site.standby.inputs import StandbyInputs, Upstream
from anabranch.site.standby.tuning import Costs, Tuning, Warmth
from anabranch.site.tasks.measures import InstanceCost
from anabranch.site.tasks.task import Task
from anabranch.standby.detector import Beat, Detector, cadence
from anabranch.stream.routes import Route

RETRY_S = 0.05
CATCH_UP_S = 120.0
LOOK_S = 0.002
TELL_S, TELL_AGAIN_S, TELLS = 1.0, 0.5, 20
ENOUGH = 20
"""Instances of its own from which a standby knows what it costs here; else it asks its primary."""
RTTS = 15
"""Calls to the primary whose median counts: one may be slow by chance."""


class GuardHost(Protocol):
    """What a guard needs of its site."""

    def new_inlets(self, task: Task) -> Sequence[LiveInlet[Any]]: ...
    def unpacker(self, task: Task, index: int, codec: str | None) -> Unpack: ...
    def consider(self, task: Task) -> None: ...
    def in_slot(self, do: Callable[[], float]) -> float | None: ...
    def tell(self) -> None: ...
    def wall_clock(self) -> float: ...


class Poster(Protocol):
    """Has posted a guard, and is told what happens to it."""

    async def took_over(self, task: Task) -> None: ...
    def superseded(self, task: Task) -> None: ...


class Guard:
    """Stands by for one task at the site `name`, as its `post` says."""

    def __init__(
        self,
        name: str,
        task: Task,
        post: StandBy,
        cluster: ClusterConfig,
        runtime: Runtime,
        links: Links,
        network: Network,
        host: GuardHost,
        poster: Poster,
    ) -> None:
        self.post = post
        self.task = task
        self.state = "standby"
        self.timeline: dict[str, float] = {}
        """When the primary was found dead and how far the take-over came, in seconds since 1970."""
        self.beaten = 0.0
        """When the primary last answered, on the same clock."""
        self._name = name
        self._runtime = runtime
        self._links = links
        self._network = network
        self._host = host
        self._poster = poster
        heartbeat_s = cluster.heartbeat_interval_us / 1e6
        self._cadence = cadence(heartbeat_s, cluster.missed_heartbeats, post.wishes.recovery_s)
        self._detector = Detector(self._cadence.missed)
        self._answered = False
        """Since the last beat was sent."""
        self._gone: Beat | None = None
        """A certain sign that it is dead."""
        self._upstream = Upstream(task.spec, links, network)
        self._rtts: deque[float] = deque(maxlen=RTTS)
        self._costs = Costs(0.0, 0.0, 0.0)
        self._asked = False
        self._sent: Sequence[int] = ()
        """How far the inputs had been sent to the primary."""
        self._wake = runtime.signal()
        self._inputs = self._new_inputs()
        self._tuning = Tuning(
            runtime,
            task.spec,
            cluster,
            name,
            post.wishes,
            self._cadence,
            self._upstream.measured,
            lambda: self._costs,
            self._inputs.ship_by,
        )
        self._warmth = Warmth(runtime, task, host.in_slot, self._consider)
        self._watching = runtime.supervise(f"standing by of {name} for {task.spec.name}", self._run)

    def _new_inputs(self) -> StandbyInputs:
        return StandbyInputs(
            self._runtime,
            self.task,
            self.post,
            self._links,
            self._upstream,
            lambda: self._host.new_inlets(self.task),
            lambda index: self._host.unpacker(self.task, index, self.post.codec),
            self._consider,
            self._failed,
        )

    def close(self) -> None:
        """Ends standing by."""
        self._quiet()
        self._watching.cancel()

    def _quiet(self) -> None:
        """Accepts nothing more, and stops practice runs."""
        self._tuning.close()
        self._warmth.close()
        self._inputs.close()

    @property
    def protects(self) -> bool:
        """Whether it has heard from every input: then it could take over now."""
        return self.state == "standby" and self._inputs.heard_all

    def _consider(self) -> None:
        self._host.consider(self.task)

    def _failed(self, error: AnabranchError) -> None:
        if self.state != "standby":
            return  # our own claim has ended the shipments
        if isinstance(error, Superseded):
            self._retire()
        else:
            self.task.fail(error)

    def reroute(self, stream: str) -> None:
        """The stream is produced elsewhere now; follows it there."""
        if self.state == "standby":
            self._inputs.reroute(stream)

    # -- take-over -------------------------------------------------------------------------------

    def take_over(self) -> None:
        """Takes over now, though the primary may be well."""
        self._asked = True
        self._wake.notify()

    async def _run(self) -> None:
        """Watches, claims, and catches up; goes on where an error has ended it."""
        if self.state == "standby":
            await self._watch()
            states = await self._claim()
            self._sent = [one.sent for one in states]
        if self.state == "primary":
            await self._poster.took_over(self.task)
            await self._catch_up(self._sent)

    async def _watch(self) -> None:
        """Watches the primary. Beats go out at their own times: a beat without an answer costs one
        interval, not two. An answer that comes later than the next beat still counts.
        """
        while not self._asked:
            self._answered = False
            self._runtime.spawn(self._beat(), f"beat for {self.task.spec.name}")
            await self._until(self._runtime.now() + self._cadence.every_s)
            if self._asked or self._detector.heard(self._found()):
                return
            await self._inputs.look_up()

    async def _until(self, due: float) -> None:
        while not (self._asked or self._gone) and (left := due - self._runtime.now()) > 0:
            await self._wake.wait(left)

    def _found(self) -> Beat:
        return self._gone or (Beat.ALIVE if self._answered else Beat.SILENT)

    async def _beat(self) -> None:
        begun = self._runtime.now()
        request = AskPrimary(self.task.spec.name)
        try:
            answer: PrimaryAnswer = await self._network.call(
                self.post.primary, request, self._cadence.silent_s
            )
        except Refused:
            self._dead(Beat.REFUSED)
            return
        except SiteError:
            return
        self._answered = True
        self.beaten = self._host.wall_clock()
        self._rtts.append(self._runtime.now() - begun)
        measures = self.task.measures
        known = measures.cost() if measures.samples >= ENOUGH else _cost(answer)
        self._costs = Costs(known.fixed, known.per_tuple, median(self._rtts))
        if not answer.runs:
            self._dead(Beat.ABSENT)

    def _dead(self, sign: Beat) -> None:
        self._gone = sign
        self._wake.notify()

    async def _claim(self) -> Sequence[ConsumerState]:
        """Tells everyone, learns from upstream where to go on, and goes on. The task's results so
        far can be sent at once: the primary would send the same. A claim cannot be made twice: one
        that fails, whatever the reason, is given up, so that another standby is posted.
        """
        self._note("noticed")
        self.state = "claiming"
        try:
            self._quiet()
            self.task.take_over()
            self._announce()
            states = await self._all_claimed()
            await self._inputs.take_over(states)
            self._note("claimed")
            self.state = "primary"
            self._links.follow_inputs(self.task)
        except (Superseded, Gap):  # replaced; or someone who knows more must be posted instead
            self._retire()
            return ()
        except Exception:
            self._retire()
            raise
        self._consider()
        return states

    async def _catch_up(self, sent: Sequence[int]) -> None:
        """Takes note when all that the primary had been sent is processed here too."""
        deadline = self._runtime.now() + CATCH_UP_S
        while any(done < last for done, last in zip(self.task.processed, sent, strict=True)):
            await self._runtime.sleep(LOOK_S)
            if self._runtime.now() > deadline:
                return
        self._note("recovered")
        self._host.tell()

    async def _all_claimed(self) -> list[ConsumerState]:
        """The answers of all inputs' producers, none of which has been replaced meanwhile: the word
        of a producer whose epoch is over says nothing about what its successor releases.
        """
        inputs = self.task.spec.inputs
        while True:
            before = [self._links.route(source).site for source in inputs]
            states = [await self._claimed(index) for index in range(len(inputs))]
            if before == [self._links.route(source).site for source in inputs]:
                return states

    async def _claimed(self, index: int) -> ConsumerState:
        """The answer of an input's producer, as soon as there is one."""
        while True:
            try:
                return await self._upstream.claim(index, self.post.epoch)
            except SiteError:
                await self._runtime.sleep(RETRY_S)

    def _announce(self) -> None:
        """Announces itself to all sites, at once; those that cannot be reached now learn it from
        others.
        """
        output = self.task.spec.output
        if output is None:
            return
        news = {output: Route(self._name, self.post.epoch, None, self.post.epoch)}
        self._links.learn(news)
        for site in self._network.sites():
            if site != self._name:
                self._runtime.spawn(self._tell(site, news))

    async def _tell(self, site: str, news: dict[str, Route]) -> None:
        for _ in range(TELLS):
            try:
                await self._network.call(site, Announce(news), TELL_S)
                return
            except AnabranchError:
                await self._runtime.sleep(TELL_AGAIN_S)
                if self.state == "retired":
                    return

    def _retire(self) -> None:
        if self.state != "retired":
            self.state = "retired"
            self._poster.superseded(self.task)
            self.close()

    def _note(self, event: str) -> None:
        self.timeline[event] = self._host.wall_clock()
        spec = self.task.spec
        note(
            event,
            f"{self._name} takes {spec.name} over from {self.post.primary}: {event}",
            site=self._name,
            query=spec.query,
            task=spec.name,
            epoch=self.post.epoch,
        )

    def report(self) -> StandbyReport:
        return StandbyReport(
            guard=self.state,
            protects=self.protects,
            batch=self._inputs.batches[0],
            tuning=self._tuning.report(),
            codec=self.post.codec,
            primary=self.post.primary,
            noticed=Noticed(self._cadence.refused_s, self._cadence.silent_s),
            kept_inputs=self._inputs.kept,
            jumps=self._inputs.jumps,
            received=self._inputs.received,
            beaten=self.beaten,
            timeline=dict(self.timeline),
            asked=self._asked,
        )


def _cost(answer: PrimaryAnswer) -> InstanceCost:
    return InstanceCost(answer.fixed_s, answer.per_tuple_s)
