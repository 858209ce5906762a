"""One life of a site's process: the site itself, with a simulated network, disk and executor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anabranch.link.inlet import Budget
from anabranch.link.messages import Addresses, News, Ping, Pong, Status
from anabranch.link.messages import SendReport as HeartbeatMessage
from anabranch.link.reports import SiteReport
from anabranch.link.store import DiskBudget, Shelves
from anabranch.log.spills import Spills
from anabranch.plan.tasks import TaskSpec
from anabranch.site.heartbeat import BEAT_S, Heartbeat, RoundTrips
from anabranch.site.links.readers import ReadersFile
from anabranch.site.service import SiteService
from anabranch.site.tasks.restart_points import PointsFile
from anabranch.site.tasks.snapshots import States
from anabranch.site.tasks.state_budget import StateBudget
from anabranch.site.tasks.task import Task
from anabranch.snapshot.timing import Limits
from anabranch.stream.restart import RestartPoint
from simulation.builder import SimBuilder
from simulation.clock import Process
from simulation.disk import SimFolder
from simulation.executor import SimExecutor
from simulation.faults import COORDINATOR
from simulation.ledger import Life
from simulation.network import Host, SimNetwork
from simulation.operators import MODULUS, Select

if TYPE_CHECKING:
    from simulation.world import World


STATES = Limits(nbytes=100, least_s=0.03)
"""Upstream keeps little for a task before its state is kept instead."""
SEGMENT_BYTES = 500
"""A log of a stream has many segments."""
PASS = Select(MODULUS)
"""What a query does that is not in the plan."""


class SimSite:
    def __init__(self, world: World, name: str, pid: int) -> None:
        plan = world.plan
        self._world = world
        self.name = name
        self.pid = pid
        self.process = Process(name, world.clock, world.rng, world.skew(name))
        self.process.wall_ahead = world.walls[name]
        self.network = SimNetwork(world.wires, self.process, plan.sites)
        self.disk = DiskBudget(plan.pace.disk_bytes)
        ledger = world.ledger
        folder = SimFolder(world.disks[name], self.process)
        points = PointsFile(folder, synced=plan.synced)
        budget = StateBudget(10**12)
        states = States(
            name,
            self.process,
            folder,
            points,
            limits=STATES,
            budget=budget,
            synced=plan.synced,
        )
        builder = SimBuilder(
            self.process,
            plan.cluster,
            folder,
            world.places[name],
            world.topics,
            lambda creation: (ledger.kind(creation) or PASS).make(),
            ledger,
            self._begins,
            world.refused,
            Shelves(
                Budget(self.process, plan.pace.memory_bytes),
                self.disk,
                Spills(folder, SEGMENT_BYTES).new,
            ),
            states,
        )
        executor = SimExecutor(
            self.process, world.rng, plan.pace.work, plan.pace.patience, world.progress
        )
        self.service = SiteService(
            name,
            plan.cluster,
            self.process,
            self.network,
            builder,
            executor,
            points,
            ReadersFile(folder),
            states,
        )
        self.trips = (
            RoundTrips(name, self.process, self.network, self.service.links.emulated)
            if plan.replan_ms
            else None
        )
        news = self.service.deployment.news
        news.ring()
        interval_s = 2 * plan.pace.heartbeat / 1000
        self.beats = Heartbeat(self.process, self._beat, news, interval_s)

    @property
    def tasks(self) -> dict[str, Task]:
        return self.service.deployment.tasks

    def host(self) -> Host:
        handlers: dict[Any, Any] = dict(self.service.handlers())
        handlers[Status] = lambda asked: self.report()
        handlers[Addresses] = lambda asked: None
        handlers[Ping] = lambda asked: Pong(self.pid)
        return Host(self.process, handlers, self.service.outlets)

    def report(self) -> SiteReport:
        trips = self.trips.report() if self.trips else {}
        return self.service.report(address=f"{self.name}:1", pid=self.pid, round_trips=trips)

    def _begins(self, spec: TaskSpec, point: RestartPoint) -> Life | None:
        behind = ", ".join(map(str, point.inputs))
        given = f", {point.output} given" if point.output else ""
        self._world.log(self.name, f"begins {spec.name} of {spec.born} behind {behind}{given}")
        return self._world.ledger.begins(spec, point)

    async def _beat(self) -> None:
        report = self.report()
        news: News = await self.network.call(COORDINATOR, HeartbeatMessage(report), BEAT_S)
        self.service.learn(news, report)
