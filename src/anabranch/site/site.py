"""One site: a gate, a Spark session, the tasks and sources deployed here, and links to others."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from anabranch.config.cluster import ClusterConfig, SiteConfig
from anabranch.connectors.operator import let_use
from anabranch.errors import SiteError, SourceError, Superseded
from anabranch.link.gate import LOCAL, Credentials, Gate, Handler
from anabranch.link.message import Message
from anabranch.link.messages import Addresses as Addresses
from anabranch.link.messages import (
    Analyse,
    Calibrate,
    CheckTypes,
    DescribePocket,
    Emulate,
    End,
    HoldState,
    LearnModel,
    ModelArrays,
    News,
    Ping,
    Plans,
    Pong,
    Push,
    ReadFile,
    ReleaseState,
    Schema,
    StageSize,
    StateFiles,
    StateQuery,
    StateRows,
    Status,
    Trial,
)
from anabranch.link.messages import SendReport as HeartbeatMessage
from anabranch.link.network import FlightNetwork
from anabranch.link.peer import Peer, Peers
from anabranch.link.reports import PlanReport, SiteReport, StateFolderReport
from anabranch.plan.expressions import TypeAnswer
from anabranch.plan.spec import Submission
from anabranch.runtime.loop import process_loop
from anabranch.site.backup import StateGiver
from anabranch.site.build import Builder
from anabranch.site.heartbeat import BEAT_S, Heartbeat, RoundTrips
from anabranch.site.http.server import SiteHttp
from anabranch.site.links.readers import ReadersFile
from anabranch.site.member import StateFolder
from anabranch.site.programs.submission import described
from anabranch.site.service import SiteService
from anabranch.site.sources.ingest import Ingest
from anabranch.site.sources.open_stream import OpenStream, decoded, encoded
from anabranch.site.state_query import look
from anabranch.site.tasks.executor import Executor
from anabranch.site.tasks.restart_points import PointsFile
from anabranch.site.tasks.snapshots import States
from anabranch.site.tasks.state_budget import state_budget
from anabranch.snapshot.timing import Limits
from anabranch.spark.alive import Alive, pings
from anabranch.spark.analyse import analyse, check_types
from anabranch.spark.jvm import jvm
from anabranch.stage.results import StageResults
from anabranch.stage.run import size_of

OF_QUEUE = 0.5
"""The part of a queue's bytes that upstream keeps for a task before its state is kept instead."""
TRIAL_S = 1.0
"""How long a trial waits for a slot."""


class Site:
    """All that a site does is asked for through its gate's actions."""

    def __init__(
        self,
        name: str,
        cluster: ClusterConfig,
        credentials: Credentials,
        spark: SparkSession,
        state: StateFolder | None = None,
    ) -> None:
        """With a `state` folder, which is ours from now on, the site can be killed and started
        again where it was.
        """
        let_use(cluster.security)
        self.name = name
        self._config = cluster.sites.get(name) or SiteConfig(name=name)
        self._spark = spark
        self._state = state
        folder = state.files if state else None
        self._runtime = process_loop()
        self.peers = Peers(credentials)
        self._executor = Executor(
            self._runtime, name, self._config.slots, self._config.schedule, spark
        )
        points = PointsFile(folder, synced=cluster.durability == "power")
        if points.damage:
            self._runtime.failed("restart points", points.damage)
        states = States(
            name,
            self._runtime,
            folder,
            points,
            budget=state_budget(self._runtime, self._config.state),
            limits=Limits(cluster.queue_bytes * OF_QUEUE),
            synced=cluster.durability == "power",
        )
        self._builder = Builder(
            cluster, spark, folder, self._runtime, self._config, self._executor, points, states
        )
        self.service = SiteService(
            name,
            cluster,
            self._runtime,
            FlightNetwork(self._runtime, name, self.peers),
            self._builder,
            self._executor,
            points,
            ReadersFile(folder),
            states,
        )
        network = FlightNetwork(self._runtime, name, self.peers)
        self._trips = RoundTrips(name, self._runtime, network, self.service.links.emulated)
        self._jvm = Alive(self._runtime, pings(spark), cluster.instance_limit_us / 1e6)
        self._beats: Heartbeat | None = None
        self.dismissed: Superseded | None = None
        """Another process has become this site meanwhile: this one is to end."""
        self._closed = threading.Event()
        self._gate = Gate(
            str(self._config.listen),
            credentials,
            self._actions(),
            self.service.outlets.__getitem__,
            self._runtime,
        )
        LOCAL[self.address] = self._gate
        self._http: SiteHttp | None = None
        if self._config.http:
            self._http = SiteHttp(self._config.http, credentials, self.report, self._ready)
        self.peers.update({name: self.address})

    @property
    def address(self) -> str:
        return str(self._config.address or self._gate.address)

    def report_to(self, coordinator: Peer, interval_s: float) -> None:
        """Goes on telling the coordinator what runs here. The first time is the registration, and
        raises if the coordinator does not accept it.
        """

        async def beat() -> None:
            report = self.report()
            try:
                news = await self._runtime.blocking(tell, report)
            except Superseded as error:
                self.dismissed = error
                raise
            self.peers.update(news.addresses)
            self.service.learn(news, report)

        def tell(report: SiteReport) -> News:
            return coordinator.send(HeartbeatMessage(report), BEAT_S)

        self._runtime.run(beat())
        self._beats = Heartbeat(self._runtime, beat, self.service.deployment.news, interval_s)

    def _ready(self) -> bool:
        """Whether the coordinator knows us, and there is a Spark to work with."""
        return self._beats is not None and not self._closed.is_set() and not jvm.ended

    def close(self) -> None:
        """Stops everything here and frees the ports. Calling it again does no harm."""
        self.stop()
        if self._http:
            self._http.close()
            self._http = None
        self.peers.close()
        self._gate.shutdown()
        if self._state:
            self._state.close()

    def stop(self) -> None:
        """Stops everything here but the gate, so that nobody waits for us any more. Calling it
        again does no harm.
        """
        if self._closed.is_set():
            return
        self._closed.set()
        self._trips.close()
        self._jvm.close()
        if self._beats:
            self._beats.close()
        self._runtime.run(self.service.close())
        self._executor.close()

    # -- actions ---------------------------------------------------------------------------------

    def _actions(self) -> dict[type[Message[Any]], Handler]:
        return {
            **self.service.handlers(),
            Ping: lambda asked: Pong(os.getpid()),
            Status: lambda asked: self.report(),
            Emulate: lambda asked: self.service.links.emulated.change(asked.delays_s),
            Addresses: lambda asked: self.peers.update(asked.peers),
            Analyse: self._analyse,
            StageSize: self._stage_size,
            StateQuery: self._state_query,
            Plans: self._plans,
            Calibrate: self._calibrate,
            LearnModel: self._learn_model,
            CheckTypes: lambda asked: check_types(list(asked.columns)),
            DescribePocket: self._describe_pocket,
            Schema: self._schema,
            Push: self._push,
            End: self._end,
            **self._backup(),
        }

    def _backup(self) -> dict[type[Message[Any]], Handler]:
        if self._state is None:
            return {}
        giver = StateGiver(self._runtime, self._state.files, self.service.links.keeper)
        return {
            HoldState: giver.hold,
            ReleaseState: giver.release,
            StateFiles: giver.files,
            ReadFile: giver.read,
        }

    def report(self) -> SiteReport:
        folder = None
        if self._state:
            place = str(self._state.files.path.absolute())
            folder = StateFolderReport(self._state.identity, place)
        with self._runtime:
            return self.service.report(
                address=self.address,
                pid=os.getpid(),
                http=self._http.url if self._http else None,
                problem=self._jvm.problem(),
                abandoned=self._jvm.abandoned,
                round_trips=self._trips.report(),
                folder=folder,
                disk=self._builder.disk.report(),
            )

    async def _describe_pocket(self, asked: DescribePocket) -> Submission:
        return await self._runtime.blocking(lambda: described(asked.name, asked.class_, asked.base))

    async def _plans(self, asked: Plans) -> tuple[PlanReport, ...]:
        return await self._runtime.blocking(lambda: self._builder.plans(asked.task))

    async def _calibrate(self, asked: Calibrate) -> Trial | None:
        """Tries a task between what runs already, so that nothing is late because of it."""

        def try_it() -> Trial | None:
            in_slot = partial(self._executor.run, patience_s=TRIAL_S)
            cost = self._builder.calibrated(asked.task, in_slot)
            return Trial(cost.fixed * 1e6, cost.per_tuple * 1e6) if cost else None

        return await self._runtime.blocking(try_it)

    async def _analyse(self, asked: Analyse) -> Sequence[TypeAnswer]:
        def look() -> Sequence[TypeAnswer]:
            columns = list(asked.columns)
            return analyse(self._spark, columns, asked.expressions, aggregate=asked.aggregate)

        return await self._runtime.blocking(look)

    async def _learn_model(self, asked: LearnModel) -> ModelArrays:
        # Only now: it needs solvers, which a site may be installed without.
        from anabranch.site.learning import learn_model

        return await self._runtime.blocking(learn_model, self._spark, asked)

    async def _stage_size(self, asked: StageSize) -> int:
        return await self._runtime.blocking(size_of, asked.stage)

    async def _state_query(self, asked: StateQuery) -> StateRows:
        stream = self.service.deployment.sources.get(asked.stream)
        results = stream.source if isinstance(stream, Ingest) else None
        if not isinstance(results, StageResults):
            raise SiteError(f"site {self.name} runs no stage {asked.stream}")
        return await self._runtime.blocking(look, self._spark, results, asked)

    async def _schema(self, asked: Schema) -> str:
        return encoded(self._open_stream(asked.stream).schema().empty_table())

    async def _push(self, asked: Push) -> bool:
        stream = self._open_stream(asked.stream)
        rows = decoded(asked.rows)
        return await self._runtime.blocking(stream.push, rows, asked.writer, asked.number)

    async def _end(self, asked: End) -> None:
        await self._runtime.blocking(self._open_stream(asked.stream).end)

    def _open_stream(self, name: str) -> OpenStream:
        found = self.service.deployment.sources.get(name)
        if found is None:
            raise SiteError(f"site {self.name} has no stream {name} to push into")
        if not isinstance(found, OpenStream):
            raise SourceError(
                f"{name} takes no rows from programs",
                place=self.name,
                remedy="Push into a stream without FROM.",
            )
        return found
