"""`coordinator.protect` and `coordinator.restore` without threads."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from anabranch.errors import AnabranchError, SiteError
from anabranch.sim.clock import Process, Signal, Steps
from anabranch.sim.guard import Post
from anabranch.sim.plan import SourceSpec, TaskSpec
from anabranch.stream.restart import RestartPoint, gather
from anabranch.stream.routes import Route

if TYPE_CHECKING:
    from anabranch.sim.world import World


@dataclass
class Catalog:
    """What a killed coordinator leaves behind."""

    sites: dict[str, str] = field(default_factory=dict)
    """Task → where it runs, as far as known."""
    rulers: dict[str, Route] = field(default_factory=dict)
    epoch: int = 0
    pids: dict[str, int] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    """Sites that have come back empty and were not given everything back yet."""

    def next_epoch(self) -> int:
        self.epoch += 1
        return self.epoch


@dataclass
class Record:
    heard: int
    report: dict[str, Any]

    def roles(self, task: str, role: str) -> list[int]:
        return [epoch for name, its, epoch in self.report["tasks"] if (name, its) == (task, role)]


class SimCoordinator:
    """One life of the coordinator's process."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.plan = world.plan
        self.pace = world.plan.pace
        self.process = Process("coordinator", world.clock)
        self.catalog = world.catalog
        self._records: dict[str, Record] = {}
        self._posted: dict[str, int] = {}
        self._news = Signal()
        self.process.spawn(self._watch())

    def handlers(self) -> dict[str, Callable[..., Any]]:
        return {"heartbeat": self._heartbeat}

    def _heartbeat(self, report: dict[str, Any]) -> dict[str, Route]:
        name, pid = report["site"], report["pid"]
        before = self.catalog.pids.get(name, pid)
        self.catalog.pids[name] = pid
        self._records[name] = Record(self.process.clock.now, report)
        if before != pid:
            self.catalog.lost.add(name)
        self._news.notify()
        return dict(self.catalog.rulers)

    def _alive(self) -> list[str]:
        oldest = self.process.clock.now - 2 * self.pace.heartbeat * self.pace.missed
        return [name for name, record in self._records.items() if record.heard >= oldest]

    def _call(self, site: str, action: str, limit: int = 0, **body: Any) -> Steps:
        limit = limit or self.pace.slow_call
        return self.world.network.call(self.process, site, action, limit, **body)

    # -- protection ------------------------------------------------------------------------------

    def _watch(self) -> Steps:
        while True:
            yield self._news, self.pace.heartbeat
            if self._learn():
                yield from self._broadcast()
            with suppress(AnabranchError):
                yield from self._restore()
            yield from self._look()

    def _learn(self) -> bool:
        moved = False
        for name, ruler in self.catalog.rulers.items():
            said = [self._records[site].report["rulers"].get(name) for site in self._alive()]
            found = list(self._reported(name, "primary").items()) + [one for one in said if one]
            newest, epoch = max(found, key=lambda one: one[1], default=("", -1))
            if epoch > ruler.epoch:
                self.catalog.rulers[name] = Route(newest, epoch, None, epoch)
                self.catalog.sites[name] = newest
                self.world.log("coordinator", f"{name} is ruled by {newest} in epoch {epoch}")
                moved = True
        return moved

    def _look(self) -> Steps:
        for task in self.plan.tasks:
            if task.kind is None:
                continue
            ruler = self.catalog.rulers.setdefault(task.name, Route(self.catalog.sites[task.name]))
            if not self._standby_is_well(task.name, ruler):
                with suppress(AnabranchError):
                    yield from self._post(task)

    def _reported(self, name: str, role: str) -> dict[str, int]:
        return {site: epoch for site in self._alive()
                for epoch in self._records[site].roles(name, role)}  # fmt: skip

    def _standby_is_well(self, name: str, ruler: Route) -> bool:
        if ruler.standby is None:
            return False
        if self._reported(name, "standby").get(ruler.standby) == ruler.claim:
            return True
        if self._reported(name, "primary").get(ruler.standby, -1) >= ruler.claim:
            return True  # it has just taken over; the next round knows
        young = self.process.clock.now - self._posted.get(name, -self.pace.grace) < self.pace.grace
        return ruler.standby in self._alive() and young

    def _choose(self, name: str, ruler: Route) -> str | None:
        """Where its primary is only if nobody else is there, and the task is not."""
        alive = [site for site in self._alive() if site != ruler.site]
        if not alive and ruler.site in self._alive():
            alive = [] if self._records[ruler.site].roles(name, "primary") else [ruler.site]
        return min(alive, key=lambda s: (len(self._records[s].report["tasks"]), s), default=None)

    def _post(self, spec: TaskSpec) -> Steps:
        ruler = self.catalog.rulers[spec.name]
        site = self._choose(spec.name, ruler)
        if site is None:
            return
        if ruler.standby and ruler.standby != site:
            with suppress(AnabranchError):
                yield from self._call(ruler.standby, "drop", task=spec.name)
        claim = self.catalog.next_epoch()
        point = yield from self._point(spec)
        yield from self._call(site, "routes", routes=dict(self.catalog.rulers))
        consumers = yield from self._consumers(spec.name, point.output)
        yield from self._call(
            site, "stand_by",
            spec=spec, sites=self._inputs(spec), point=point,
            post=Post(ruler.site, claim, spec.batch), consumers=consumers,
        )  # fmt: skip
        self._posted[spec.name] = self.process.clock.now
        self.catalog.rulers[spec.name] = replace(ruler, standby=site, claim=claim)
        yield from self._broadcast()

    def _inputs(self, spec: TaskSpec) -> tuple[str, ...]:
        return tuple(self._site_of(name) for name in spec.inputs)

    def _site_of(self, stream: str) -> str:
        sources = {one.name: one.site for one in self.plan.sources}
        return sources.get(stream) or self.catalog.sites[stream]

    def _broadcast(self) -> Steps:
        yield from self._all("routes", routes=dict(self.catalog.rulers))

    def _all(self, action: str, **body: Any) -> Steps:
        """The answers of all live sites that give one, asked at once."""
        sites = self._alive()
        left, answered = [len(sites)], Signal()
        answers = []

        def ask(site: str) -> Steps:
            with suppress(AnabranchError):
                answers.append((yield from self._call(site, action, self.pace.call, **body)))
            left[0] -= 1
            answered.notify()

        for site in sites:
            self.process.spawn(ask(site))
        while left[0]:
            yield answered, None
        return answers

    def _known(self) -> Steps:
        """Task → the newest point that anybody knows: its primary, its standby, those it ran at,
        those it reads."""
        return gather((yield from self._all("points")))

    def _point(self, spec: TaskSpec) -> Steps:
        """Where a task would restart: as sites and those it reads know. Raises SiteError if that
        lies behind what its producers have let go of: somebody knows more, who is not there."""
        known = yield from self._known()
        point = known.get(spec.name, RestartPoint(tuple(0 for _ in spec.inputs), 0))
        least = []
        for index, stream in enumerate(spec.inputs):
            released, told = yield from self._call(
                self._site_of(stream), "standing", stream=stream, consumer=spec.consumer(index)
            )
            least.append(released)
            point = point.join(told) if told else point
        if any(has < needed for has, needed in zip(point.inputs, least, strict=True)):
            raise SiteError(f"nobody there knows where {spec.name} would restart")
        return point

    def _consumers(self, stream: str, output: int) -> Steps:
        """Who reads a stream that is to begin behind `output`: from where on, in which epoch."""
        needed = {}
        known = yield from self._known()
        for task, index in self.plan.readers(stream):
            point = known.get(task.name)
            after = point.inputs[index] if point else 0
            if after < output:
                raise SiteError(f"nobody there knows where {task.name} would restart")
            needed[task.consumer(index)] = after, point, self._epoch(task.name)
        return needed

    def _epoch(self, task: str) -> int:
        ruler = self.catalog.rulers.get(task)
        return ruler.epoch if ruler else 0

    # -- restoration -----------------------------------------------------------------------------

    def _restore(self) -> Steps:
        """Sites that came back get what they lack; again, until that has succeeded."""
        lost = sorted(self.catalog.lost & set(self._alive()))
        if lost:
            yield from self._put_back(lost)
            self.catalog.lost -= set(lost)

    def _put_back(self, lost: Collection[str]) -> Steps:
        """Sources and sinks. What may move is left to a standby, which claims its inputs first."""
        there: set[str] = set()
        for site in lost:
            report = yield from self._call(site, "status", self.pace.call)
            there |= {task for task, _, _ in report["tasks"]} | set(report["sources"])
        sinks = [task for task in self.plan.sinks
                 if self.catalog.sites[task.name] in lost and task.name not in there]  # fmt: skip
        sources = [source for source in self.plan.sources
                   if source.site in lost and source.name not in there]  # fmt: skip
        names = [source.name for source in sources] + [sink.name for sink in sinks]
        self.world.log("coordinator", f"restores {names} at {lost}")
        for source in sources:
            yield from self._put_source_back(source)
        for sink in sinks:
            yield from self._put_sink_back(sink)

    def _put_source_back(self, source: SourceSpec) -> Steps:
        """It begins where the first of its readers needs it."""
        consumers = yield from self._consumers(source.name, 0)
        yield from self._call(source.site, "prepare", sources=[source], tasks={})
        start = min((after for after, _, _ in consumers.values()), default=0)
        yield from self._call(source.site, "place", outputs={source.name: start})
        for consumer, (after, point, epoch) in consumers.items():
            yield from self._call(
                source.site, "attach", stream=source.name, consumer=consumer,
                after=after, point=point, epoch=epoch,
            )  # fmt: skip
        yield from self._call(source.site, "start_sources")

    def _put_sink_back(self, sink: TaskSpec) -> Steps:
        site = self.catalog.sites[sink.name]
        points = yield from self._call(site, "points")
        point = points.get(sink.name) or RestartPoint((0,), 0)
        yield from self._call(site, "prepare", sources=[], tasks={sink: self._inputs(sink)})
        yield from self._call(site, "start", tasks={sink.name: (point, 0)})
