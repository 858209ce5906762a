"""`site.site` and `site.protection` without Spark: what a site does when it is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from anabranch.errors import AnabranchError, SiteError
from anabranch.sim.clock import Process, Signal, Steps
from anabranch.sim.guard import Guard, Post
from anabranch.sim.links import Links
from anabranch.sim.network import Connection, Host
from anabranch.sim.outlet import SimOutlet
from anabranch.sim.plan import SourceSpec, TaskSpec
from anabranch.sim.rows import Row
from anabranch.sim.task import SimTask, SinkOperator
from anabranch.stream.batch import END_WATERMARK
from anabranch.stream.restart import RestartPoint, gather
from anabranch.stream.routes import Route

if TYPE_CHECKING:
    from anabranch.sim.world import World


@dataclass
class Disk:
    """What a killed process leaves behind."""

    points: dict[str, RestartPoint] = field(default_factory=dict)
    sinks: dict[str, dict[int, Row]] = field(default_factory=dict)


class SimSite:
    """One life of a site's process."""

    def __init__(self, world: World, name: str, pid: int) -> None:
        self.world = world
        self.name = name
        self.pid = pid
        self.pace = world.plan.pace
        self.process = Process(name, world.clock)
        self.disk = world.disks[name]
        self.tasks: dict[str, SimTask] = {}
        self.outlets: dict[str, SimOutlet] = {}
        self.sources: dict[str, SourceSpec] = {}
        self.reading: set[str] = set()
        self.guards: dict[str, Guard] = {}
        self.links = Links(self)
        self._news = Signal()
        self._fresh = False
        self.process.spawn(self._report())

    def handlers(self) -> dict[str, Callable[..., Any]]:
        return {
            "beat": self._beat, "stand_by": self.stand_by, "take_over": self.take_over,
            "claim": lambda stream, consumer, epoch: self.outlet(stream).claim(consumer, epoch),
            "standing": lambda stream, consumer: self.outlet(stream).standing(consumer),
            "routes": self.learn, "acks": self.links.take_acks, "drop": self._drop,
            "status": self.report, "points": self.restart_points, "prepare": self.prepare,
            "place": self.place, "attach": self.attach, "start": self.start,
            "start_sources": self.start_sources, "outlet": self.outlet,
        }  # fmt: skip

    def log(self, text: str) -> None:
        self.world.log(self.name, text)

    def call(self, site: str, action: str, limit: int, **body: Any) -> Steps:
        return self.world.network.call(self.process, site, action, limit, **body)

    def connect(
        self, task: SimTask, index: int, serve: Callable[[SimOutlet, Connection], None]
    ) -> Connection:
        """To the outlet of an input, wherever that is now."""
        stream = task.spec.inputs[index]

        def find(host: Host, connection: Connection) -> None:
            try:
                serve(host.handlers["outlet"](stream), connection)
            except SiteError as error:
                connection.send(error)

        target = self.links.route(task, index).site
        return self.world.network.connect(self.process, target, find)

    def others(self) -> list[str]:
        return [name for name in self.world.plan.sites if name != self.name]

    def outlet(self, stream: str) -> SimOutlet:
        if stream not in self.outlets:
            raise SiteError(f"site {self.name} does not produce stream {stream}")
        return self.outlets[stream]

    # -- to the coordinator ----------------------------------------------------------------------

    def report(self) -> dict[str, Any]:
        return {
            "site": self.name,
            "pid": self.pid,
            "tasks": [(t.spec.name, t.role, t.epoch) for t in self._started()],
            "sources": sorted(self.reading),
            "rulers": self.links.routes.rulers(),
        }

    def _report(self) -> Steps:
        while True:
            self._fresh = False
            with suppress(AnabranchError):  # while it is away; it is told again
                routes = yield from self.call(
                    "coordinator", "heartbeat", self.pace.call, report=self.report()
                )
                self.learn(routes)
            if not self._fresh:
                yield self._news, 2 * self.pace.heartbeat

    def news(self) -> None:
        self._fresh = True
        self._news.notify()

    def restart_points(self) -> dict[str, RestartPoint]:
        """Of all tasks that run here or did, of those it stands by for, and of all that read what
        they or sources here produce."""
        self.save_points(self._ruled())
        running = {task.spec.name: task.restart_point() for task in self._started()}
        read = [outlet.outlet.readers() for outlet in self.outlets.values()]
        return gather([self.disk.points, running, *read])

    def _started(self) -> list[SimTask]:
        return [task for task in self.tasks.values() if task.state != "waiting"]

    def _ruled(self) -> list[SimTask]:
        return [task for task in self._started() if task.role == "primary"]

    def save_points(self, tasks: Iterable[SimTask]) -> None:
        """Before anybody hears of them. Those of tasks that ran here before stay: perhaps nobody
        else knows them any more."""
        for task in tasks:
            self.disk.points[task.spec.name] = task.restart_point()

    # -- deployment ------------------------------------------------------------------------------

    def prepare(self, sources: Iterable[SourceSpec], tasks: Mapping[TaskSpec, Any]) -> None:
        for source in sources:
            self.sources[source.name] = source
            if source.name in self.outlets:
                self.outlets[source.name].close()
            self.outlets[source.name] = self._new_outlet(source.name)
        for spec, sites in tasks.items():
            if spec.name in self.tasks:
                self.discard(self.tasks[spec.name])
            self._install(spec, sites)

    def _install(self, spec: TaskSpec, sites: tuple[str, ...]) -> SimTask:
        outlet = None
        if spec.kind is None:
            task = SimTask(
                spec, SinkOperator(self.disk.sinks.setdefault(spec.name, {})), sites, None
            )
        else:
            outlet = self.outlets[spec.name] = self._new_outlet(spec.name)
            task = SimTask(spec, spec.kind.make(), sites, outlet)
        self.tasks[spec.name] = task
        task.on_release = lambda: self.links.released(task)
        task.on_failure = lambda error: self.world.failed(self, task, error)
        return task

    def _new_outlet(self, stream: str) -> SimOutlet:
        return SimOutlet(stream, self.process, self.pace.heartbeat, self.world.check)

    def place(self, outputs: Mapping[str, int]) -> None:
        for stream, position in outputs.items():
            self.outlet(stream).start_at(position)

    def attach(
        self, stream: str, consumer: str, after: int | None, point: RestartPoint | None, epoch: int
    ) -> int:
        outlet = self.outlet(stream).outlet
        return outlet.attach(consumer, after=after, point=point, epoch=epoch)

    def start(self, tasks: Mapping[str, tuple[RestartPoint, int]]) -> None:
        for name, (point, epoch) in tasks.items():
            if name not in self.tasks:
                raise SiteError(f"{name} was dropped at {self.name} before it began")
            self.log(f"{name} starts at {point} in epoch {epoch}")
            self.tasks[name].start(point, epoch)
            self.links.follow_inputs(self.tasks[name])
        self.save_points(self._ruled())

    def start_sources(self) -> None:
        for name, source in self.sources.items():
            if name not in self.reading:
                self.reading.add(name)
                self.process.spawn(self._read(source))

    def _read(self, source: SourceSpec) -> Steps:
        """What is due, in whatever pieces time cuts it into; then the end."""
        outlet = self.outlets[source.name]
        clock, count = self.process.clock, len(source.rows)
        while (last := outlet.outlet.last) < count:
            ready = last
            while ready < count and source.due[ready] <= clock.now:
                ready += 1
            if ready > last:
                outlet.append(list(source.rows[last:ready]), source.watermarks[ready - 1])
            else:
                yield source.due[last] - clock.now
        outlet.append([], END_WATERMARK)

    def _drop(self, task: str) -> None:
        """If it still stands by: one that has taken over meanwhile goes on."""
        if task in self.tasks and self.tasks[task].role == "standby":
            self.discard(self.tasks[task])

    # -- protection ------------------------------------------------------------------------------

    def _beat(self, task: str) -> bool:
        found = self.tasks.get(task)
        return found is not None and found.role == "primary" and found.state != "waiting"

    def stand_by(
        self,
        spec: TaskSpec,
        sites: tuple[str, ...],
        point: RestartPoint,
        post: Post,
        consumers: Mapping[str, tuple[int, RestartPoint | None, int]],
    ) -> None:
        """`consumers`: name → where it needs the output from, its restart point and its epoch."""
        if spec.name in self.tasks:
            self.discard(self.tasks[spec.name])
        task = self._install(spec, sites)
        task.role = "standby"
        assert task.outlet
        task.outlet.start_at(point.output)
        for consumer, (after, known, epoch) in consumers.items():
            task.outlet.outlet.attach(consumer, after=after, point=known, epoch=epoch)
        task.start(point, post.epoch)
        self.log(f"{spec.name} stands by from {point} in epoch {post.epoch}, for {consumers}")
        self.guards[spec.name] = Guard(self, task, point, post)

    def take_over(self, task: str) -> None:
        if task in self.guards:
            self.guards[task].take_over()

    def learn(self, routes: Mapping[str, Route]) -> None:
        before = {stream: self.links.routes[stream] for stream in routes}
        self.links.learn(routes)
        for stream, known in before.items():
            route = self.links.routes[stream]
            if route == known or route is None:
                continue
            for guard in list(self.guards.values()):
                guard.reroute(stream)
                mine = guard.task.spec.name == stream and guard.state == "standby"
                if mine and route.dismisses(self.name, guard.post.epoch):
                    self.discard(guard.task)

    def ruling(self) -> None:
        self.save_points(self._ruled())
        self.news()

    def superseded(self, task: SimTask) -> None:
        """In a thread of its own in a real site: whoever found out goes on first."""
        self.process.clock.after(0, self.process.run, self.discard, task)

    def discard(self, task: SimTask) -> None:
        name = task.spec.name
        if self.tasks.get(name) is not task:
            return
        self.log(f"{name} of epoch {task.epoch} is dropped")
        del self.tasks[name]
        if guard := self.guards.pop(name, None):
            guard.close()
        if task.state in ("waiting", "running"):
            task.state = "stopped"
        self.links.unfollow(task)
        if task.outlet:
            self.outlets.pop(name).close()
        self.news()

    # -- running ---------------------------------------------------------------------------------

    def consider(self, task: SimTask) -> None:
        """Run an instance soon, if there is something to do."""
        if task.ready() and not task.scheduled:
            task.scheduled = True
            most = self.pace.patience if task.lazy and task.role == "standby" else self.pace.work
            self.process.clock.after(self.world.rng.randint(0, most), self._due, task)

    def _due(self, task: SimTask) -> None:
        self.process.run(self._run, task)

    def _run(self, task: SimTask) -> None:
        task.scheduled = False
        if task.ready():
            task.run_instance()
            self.world.progress(self, task)
