"""All that a site does when it is asked, whatever carries the questions: no gate, no Spark. What
the catalog does not have is stopped here.

A `DROP` does not wait for sites that are out of reach. They learn what they should run from the
answer to each heartbeat, and stop the rest by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from anabranch.config.cluster import ClusterConfig
from anabranch.link.message import PROTOCOL, Message, Order
from anabranch.link.messages import (
    Acks,
    Announce,
    AskConsumer,
    AskPrimary,
    AskTraffic,
    Attach,
    Check,
    ClaimInput,
    Detach,
    DropTasks,
    FindState,
    GoOnWithout,
    News,
    Points,
    Prepare,
    ReadState,
    SetPositions,
    ShipBy,
    StandBy,
    Start,
    StartSources,
    TakeOver,
    Urgencies,
)
from anabranch.link.network import Network
from anabranch.link.outlet import LiveOutlet
from anabranch.link.reports import (
    DiskReport,
    SiteReport,
    SourceReport,
    StateFolderReport,
    TaskReport,
)
from anabranch.plan.definitions import Running, Wanted
from anabranch.runtime.base import Runtime
from anabranch.runtime.log import note
from anabranch.site.deployment import Builds, Deployment, Runs
from anabranch.site.links.links import Links
from anabranch.site.links.readers import ReadersFile
from anabranch.site.links.states import StateExchange
from anabranch.site.member import Member
from anabranch.site.standby.protection import StandbyGuards
from anabranch.site.tasks.limits import InstanceLimits
from anabranch.site.tasks.restart_points import PointsFile
from anabranch.site.tasks.snapshots import States
from anabranch.site.tasks.task import Task
from anabranch.stream.restart import RestartPoint
from anabranch.version import VERSION


class Ghosts:
    """A ghost is stopped, and a reader released, when two reports in a row contained it and the
    answers to both did not want it: an answer may have been on its way while something was
    deployed.
    """

    def __init__(self, runtime: Runtime, deployment: Deployment) -> None:
        self._runtime = runtime
        self._deployment = deployment
        self._seen: set[Running] = set()
        self._readers: set[tuple[str, str]] = set()

    def heard(self, wanted: Wanted, report: SiteReport) -> None:
        """Takes the answer to `report`, which is what the coordinator knew of us when it
        answered.
        """
        now = wanted.ghosts(report.running())
        stopped, self._seen = now & self._seen, now
        if stopped:
            self._runtime.spawn(self._stop(stopped), "ghosts")
        readers = set(_unwanted(wanted, report))
        gone, self._readers = readers & self._readers, readers
        for stream, consumer in gone:
            if outlet := self._deployment.outlets.get(stream):
                outlet.detach(consumer)

    async def _stop(self, ghosts: Iterable[Running]) -> None:
        tasks = {one.name: one.born for one in ghosts if one.kind == "task"}
        sources = {one.name: one.born for one in ghosts if one.kind == "source"}
        for name in (*tasks, *sources):
            note("stopped", f"{name} stopped: it was dropped while this site was away", query=name)
        await self._deployment.drop(DropTasks(tuple(tasks), tuple(sources), born=tasks | sources))


def _unwanted(wanted: Wanted, report: SiteReport) -> Iterable[tuple[str, str]]:
    """Readers of streams here that are none of the catalog's tasks. Programs hold a lease."""
    for stream, consumers in report.consumers.items():
        for consumer in consumers:
            if stream in wanted.readers and consumer not in wanted.readers[stream]:
                yield stream, consumer


Handlers = dict[type[Message[Any]], Callable[[Any], Any]]


class SiteService:
    """Deploying takes four steps, so that a script is deployed whole or not at all and no tuple
    passes before everyone is there: `prepare` (build and check), `attach` (producers keep tuples
    for their consumers), `start` (tasks follow their inputs), `start_sources`.
    """

    def __init__(
        self,
        name: str,
        cluster: ClusterConfig,
        runtime: Runtime,
        network: Network,
        builder: Builds,
        executor: Runs,
        points: PointsFile,
        readers: ReadersFile,
        states: States,
    ) -> None:
        self.name = name
        self._runtime = runtime
        self._executor = executor
        tasks: dict[str, Task] = {}
        self.outlets: dict[str, LiveOutlet[Any]] = {}
        self.links = Links(
            name,
            cluster,
            runtime,
            network,
            self.outlets,
            tasks,
            points,
            readers,
            superseded=lambda task: self.protection.superseded(task),
            behind=lambda task, error: self.protection.behind(task, error),
        )
        self._exchange = exchange = StateExchange(network, states)
        self.deployment = Deployment(
            runtime,
            tasks,
            self.outlets,
            builder,
            self.links,
            executor,
            points,
            readers,
            states,
            exchange,
            forget=lambda task: self.protection.forget(task),
        )
        self._limits = InstanceLimits(
            runtime, name, lambda: self.deployment.tasks.values(), cluster.instance_limit_us / 1e6
        )
        self.protection = StandbyGuards(
            name, cluster, runtime, network, self.deployment, self.links
        )
        self._ghosts = Ghosts(runtime, self.deployment)
        self._troubled: dict[str, float] = {}
        """Stream → since when nothing can come for now."""
        self._points_kept = points
        self.member = Member(name, lambda: bool(tasks or self.deployment.sources))

    async def close(self) -> None:
        self.protection.close()
        self._limits.close()
        await self.deployment.close()
        self.links.close()

    def handlers(self) -> Handlers:
        deployment, protection = self.deployment, self.protection
        handlers: Handlers = {
            Check: deployment.check,
            Prepare: deployment.prepare,
            Attach: self._attach,
            Detach: self._detach,
            SetPositions: deployment.place,
            Points: self._points,
            Start: deployment.start,
            StartSources: deployment.start_sources,
            Urgencies: deployment.hurry,
            DropTasks: deployment.drop,
            GoOnWithout: deployment.go_on_without,
            Acks: self._acks,
            AskPrimary: protection.beat,
            StandBy: protection.stand_by,
            TakeOver: protection.take_over,
            ClaimInput: protection.claim,
            AskConsumer: protection.consumer_state,
            Announce: protection.announced,
            ShipBy: protection.ship_by,
            AskTraffic: protection.measured,
            FindState: self._exchange.find,
            ReadState: self._exchange.read,
        }
        return {
            kind: self._checked(handle) if issubclass(kind, Order) else handle
            for kind, handle in handlers.items()
        }

    def _checked(self, handle: Callable[[Any], Any]) -> Callable[[Any], Any]:
        async def checked(order: Order[Any]) -> Any:
            self.member.check(order)
            return await handle(order)

        return checked

    def learn(self, news: News, report: SiteReport) -> None:
        """Learns from the coordinator's answer to a report."""
        self.member.belongs_to(news.origin)
        self.protection.learn(news.routes)
        if news.wanted:
            self._ghosts.heard(news.wanted, report)

    def report(
        self,
        *,
        address: str,
        pid: int,
        http: str | None = None,
        problem: str = "",
        abandoned: int = 0,
        round_trips: Mapping[str, float] | None = None,
        folder: StateFolderReport | None = None,
        disk: DiskReport | None = None,
    ) -> SiteReport:
        """The report: what runs here, and who produces what as far as we know; and what this
        process says of itself.
        """
        outlets, member = list(self.outlets.items()), self.member
        return SiteReport(
            site=self.name,
            tasks=tuple(self._task_report(one) for one in list(self.deployment.tasks.values())),
            sources=tuple(self._source_report(one) for one in list(self.deployment.sources)),
            producers=self.links.routes.producers(),
            troubles=self._runtime.troubles.report(self._runtime.now()),
            kept={name: outlet.kept() for name, outlet in outlets},
            spilled={name: spilled for name, one in outlets if (spilled := one.spilled())},
            disk=disk,
            consumers={name: tuple(outlet.tasks()) for name, outlet in outlets},
            traffic={name: replace(one.traffic) for name, one in outlets if one.traffic.tuples},
            seen=self._seen(),
            origin=member.origin,
            life=member.life,
            started=member.started,
            protocol=PROTOCOL,
            version=VERSION,
            address=address,
            http=http,
            problem=problem,
            abandoned=abandoned,
            pid=pid,
            round_trips=dict(round_trips or {}),
            folder=folder,
        )

    def _seen(self) -> int:
        """The greatest number of a coordinator's that is known here: of an epoch or a creation."""
        tasks = self.deployment.tasks.values()
        points = self._points_kept.all().values()
        return max(
            *self.deployment.born.values(),
            *(number for task in tasks for number in (task.epoch, task.spec.born)),
            *(point.incarnation for point in points),
            self.links.routes.newest(),
            0,
            0,
        )

    def _task_report(self, task: Task) -> TaskReport:
        problem, breaks = self.links.troubles(task)
        standby = self.protection.report(task)
        return replace(task.report(), problem=problem, breaks=breaks, standby=standby)

    def _source_report(self, name: str) -> SourceReport:
        report, born = self.deployment.sources[name].report(), self.deployment.born.get(name, 0)
        if not report.problem:
            self._troubled.pop(name, None)
            return replace(report, born=born)
        now = self._runtime.now()
        since = self._troubled.setdefault(name, now)
        return replace(report, born=born, problem_s=round(now - since, 1))

    async def _points(self, asked: Points) -> dict[str, RestartPoint]:
        return await self.deployment.restart_points()

    async def _attach(self, asked: Attach) -> int:
        outlet, after = self.links.outlet(asked.stream), asked.after
        if asked.past and after is None and not outlet.knows(asked.consumer, asked.born):
            after = await outlet.find(asked.past)
        return outlet.attach(
            asked.consumer,
            after=after,
            point=asked.point,
            epoch=asked.epoch,
            born=asked.born,
            lease=asked.lease,
        )

    async def _detach(self, asked: Detach) -> None:
        self.links.detach(asked.stream, asked.consumer, asked.epoch, asked.born)

    def _acks(self, asked: Acks) -> list[tuple[str, int]]:
        """Takes acks. It is no coroutine, because sites of the same process call it directly."""
        with self._runtime:
            return self.links.take_acks(asked.acks)
