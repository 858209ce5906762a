"""From descriptions to what a simulated site runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

from anabranch.config.cluster import ClusterConfig
from anabranch.errors import CannotResume
from anabranch.link.inlet import Budget, LiveInlet
from anabranch.link.store import Shelves
from anabranch.link.wire import Unpack
from anabranch.plan.catalog import StreamDef, TableDef
from anabranch.plan.places import Looked
from anabranch.plan.tasks import TaskInput, TaskSpec
from anabranch.site.sources.ingest import SourceStream
from anabranch.site.sources.journal import Journal
from anabranch.site.tasks.snapshots import States
from anabranch.site.tasks.task import Owner, Task
from simulation.bodies import Begins, OperatorBody, Places, SimTask, SinkOperator
from simulation.clock import Process
from simulation.disk import SimFolder
from simulation.ingest import SEGMENTS, Refused, SimIngest
from simulation.ledger import Ledger
from simulation.operators import Operator
from simulation.outlets import CheckedOutlet, SourceOutlet
from simulation.rows import Rows
from simulation.topics import Topic, TopicSource

Checked = TypeVar("Checked", bound=CheckedOutlet)


class SimBuilder:
    """Of one process. `operators` makes what a creation of a query does; `begins` hears of each
    task that begins, `refused` of each stream that cannot go on."""

    def __init__(
        self,
        process: Process,
        cluster: ClusterConfig,
        folder: SimFolder,
        places: Places,
        topics: Mapping[str, Topic],
        operators: Callable[[str], Operator],
        ledger: Ledger,
        begins: Begins,
        refused: Refused,
        shelves: Shelves,
        states: States,
    ) -> None:
        self._states = states
        self._process = process
        self._cluster = cluster
        self._folder = folder
        self._places = places
        self._topics = topics
        self._operators = operators
        self._ledger = ledger
        self._begins = begins
        self._refused = refused
        self._shelves = shelves
        self._budget = Budget(process, cluster.queue_bytes)
        self._heartbeat_s = cluster.heartbeat_interval_us / 1e6

    def source(self, definition: StreamDef | TableDef, *, resume: bool) -> SourceStream:
        assert isinstance(definition, StreamDef)
        name, process = definition.name, self._process
        outlet = self._outlet(name, SourceOutlet)
        life = outlet.life = self._ledger.source(name, definition.born)
        return SimIngest(
            process,
            definition,
            outlet,
            TopicSource(self._topics[name], process, process.rng),
            self._journal(name, resume=resume),
            self._heartbeat_s,
            self._refused,
            partial(self._ledger.needs_nothing, life),
            synced=self._cluster.durability == "power",
        )

    def _journal(self, stream: str, *, resume: bool) -> Journal:
        name = f"{stream}.journal"
        if not resume:
            Journal.forget(self._folder, name)
        try:
            return Journal(self._folder, name, self._process.rng.choice(SEGMENTS))
        except CannotResume as error:
            self._refused(stream, error, True)
            raise

    def check_source(self, definition: StreamDef | TableDef) -> Looked:
        """It is there."""
        return Looked(())

    def check_sink(self, spec: TaskSpec) -> Looked:
        """It can be written."""
        return Looked(())

    def task(
        self, spec: TaskSpec, outlets: Mapping[str, Any], owner: Owner, *, resume: bool
    ) -> Task:
        if spec.output is None:
            operator: Operator = SinkOperator(self._places.sink(spec.name, spec.run))
            outlet = None
        else:
            operator, outlet = self._operators(spec.base), self._outlet(spec.output, CheckedOutlet)
        runs, inlets = OperatorBody(operator), self.inlets(spec)
        return SimTask(
            self._begins,
            self._process,
            owner,
            spec,
            runs,
            inlets,
            outlet,
            NoJobs(),
            tuple,
            1_000_000,
            self._states if outlet else None,
        )

    def inlets(self, spec: TaskSpec) -> list[LiveInlet[Rows]]:
        make = partial(LiveInlet, limit=self._cluster.queue_bytes, budget=self._budget)
        return [make(one.stream) for one in spec.inputs]

    def unpacker(self, source: TaskInput, codec: str | None) -> Unpack:
        return lambda batch: batch

    def forget(self, streams: Iterable[str], tasks: Iterable[str]) -> None:
        for stream in streams:
            Journal.forget(self._folder, f"{stream}.journal")

    def pocket_executor(self, name: str) -> Any:
        raise NotImplementedError("no pockets here")

    def _outlet(self, stream: str, kind: type[Checked]) -> Checked:
        return kind(
            self._ledger.check,
            self._process,
            stream,
            kind.payloads,
            limit=max(1, self._cluster.queue_bytes // 4),
            heartbeat_s=self._heartbeat_s,
            shelves=self._shelves,
        )


class NoJobs:
    """There is no Spark."""

    def begin(self, description: str) -> None: ...

    def cancel(self) -> None: ...
