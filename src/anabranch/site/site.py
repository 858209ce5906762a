"""One site: a gate, a Spark session, the tasks and sources deployed here, and links to others."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

from pyspark.sql import SparkSession

from anabranch.config.cluster import Cluster, SiteConfig
from anabranch.errors import AnabranchError, SiteError, StaleEpoch
from anabranch.link.emulation import Emulation
from anabranch.link.gate import Credentials, Gate
from anabranch.link.inlet import LiveInlet
from anabranch.link.outlet import LiveOutlet
from anabranch.link.peer import Peers
from anabranch.link.subscription import Batches, Subscription
from anabranch.plan.catalog import StreamDef
from anabranch.plan.operators import Column
from anabranch.plan.tasks import Input, TaskSpec
from anabranch.site.acks import Ack, AckSender
from anabranch.site.analyse import analyse, check_types
from anabranch.site.build import Builder
from anabranch.site.executor import Executor
from anabranch.site.ingest import Ingest
from anabranch.site.task import Task
from anabranch.stream.restart import RestartPoint

S = TypeVar("S")
T = TypeVar("T")


class Site:
    """Everything a site does is asked for through its gate's actions.

    Deploying takes four steps, so that a script is deployed whole or not at all and no tuple passes
    before everyone is there: `prepare` (build and check), `attach` (producers keep tuples for their
    consumers), `start` (tasks follow their inputs), `start_sources`.
    """

    def __init__(
        self, name: str, cluster: Cluster, credentials: Credentials, spark: SparkSession
    ) -> None:
        self.name = name
        self._cluster = cluster
        self._config = cluster.sites.get(name) or SiteConfig(name=name)
        self._spark = spark
        self._builder = Builder(cluster, spark)
        self._deploying = threading.RLock()
        self._wiring = threading.Lock()
        self.tasks: dict[str, Task] = {}
        self.sources: dict[str, Ingest] = {}
        self._outlets: dict[str, LiveOutlet] = {}
        self._subscriptions: dict[str, list[Subscription]] = {}
        self._senders: dict[str, AckSender] = {}
        self.peers = Peers(credentials)
        self._closed = threading.Event()
        self._gate = Gate(
            str(self._config.listen), credentials, self._actions(), self._outlets.__getitem__
        )
        self._executor = Executor(name, self._config.slots)
        watch = threading.Thread(target=self._watch_links, name=f"{name}-watch", daemon=True)
        watch.start()

    @property
    def address(self) -> str:
        return str(self._config.address or self._gate.address)

    def close(self) -> None:
        """Stop everything here and free the port. Idempotent."""
        self.stop()
        self.peers.close()
        self._gate.shutdown()

    def stop(self) -> None:
        """Stop everything here but the gate, so that nobody waits for us any more. Idempotent."""
        if self._closed.is_set():
            return
        self._closed.set()
        for source in self.sources.values():
            source.close()
        self._drop_tasks(list(self.tasks), tell=False)
        for outlet in self._outlets.values():
            outlet.close()
        for sender in self._senders.values():
            sender.close()
        self._executor.close()

    # -- actions ---------------------------------------------------------------------------------

    def _actions(self) -> dict[str, Callable[[dict[str, Any]], Any]]:
        return {
            "ping": lambda body: {"site": self.name, "pid": os.getpid()},
            "status": lambda body: self.report(),
            "analyse": self._analyse,
            "check_types": lambda body: check_types(_columns(body["columns"])),
            "peers": lambda body: self.peers.update(body["peers"]),
            "prepare": self._prepare,
            "attach": lambda body: self._outlet(body["stream"]).attach(body["consumer"]),
            "detach": self._detach,
            "start": self._start,
            "start_sources": self._start_sources,
            "drop": self._drop,
            "acks": self._acks,
        }

    def report(self) -> dict[str, Any]:
        return {
            "site": self.name,
            "address": self.address,
            "pid": os.getpid(),
            "tasks": [self._task_report(task) for task in list(self.tasks.values())],
            "sources": [source.report() for source in list(self.sources.values())],
            "kept": {name: outlet.kept() for name, outlet in list(self._outlets.items())},
        }

    def _task_report(self, task: Task) -> dict[str, Any]:
        links = self._subscriptions.get(task.spec.name, [])
        problems = [link.problem for link in links if link.problem]
        breaks = sum(link.breaks for link in links)
        return task.report() | {"problem": "; ".join(problems), "breaks": breaks}

    def _analyse(self, body: dict[str, Any]) -> Any:
        return analyse(self._spark, _columns(body["columns"]), body["alias"], body["expressions"])

    def _prepare(self, body: dict[str, Any]) -> None:
        """Build all or nothing; raises what is wrong with the first thing that cannot be built."""
        streams = [StreamDef.model_validate(one) for one in body["streams"]]
        specs = [TaskSpec.model_validate(one) for one in body["tasks"]]
        with self._deploying:
            sources = [_named("stream", s.name, self._builder.ingest, s) for s in streams]
            tasks = [_named("query", spec.query, self._builder.task, spec) for spec in specs]
            for source in sources:
                self.sources[source.stream.name] = source
                self._outlets[source.stream.name] = source.outlet
            for task in tasks:
                self._install(task)

    def _install(self, task: Task) -> None:
        self.tasks[task.spec.name] = task
        if task.outlet and task.spec.output:
            self._outlets[task.spec.output] = task.outlet
            task.outlet.on_room = partial(self._executor.consider, task)
        task.on_failure = self._task_failed
        for source, inlet in zip(task.spec.inputs, task.inlets, strict=True):
            inlet.on_data = partial(self._arrived, task, source, inlet)

    def _start(self, body: dict[str, Any]) -> None:
        """`tasks`: name → positions, one per input, behind which the task begins."""
        with self._deploying:
            for name, positions in body["tasks"].items():
                task = self.tasks[name]
                task.on_release = partial(self._released, task)
                task.start(positions)
                self._subscriptions[name] = [
                    self._subscribe(task, source, inlet)
                    for source, inlet in zip(task.spec.inputs, task.inlets, strict=True)
                ]

    def _start_sources(self, body: dict[str, Any]) -> None:
        with self._deploying:
            for name in body["streams"]:
                self.sources[name].start()

    def _drop(self, body: dict[str, Any]) -> None:
        with self._deploying:
            self._drop_tasks(body.get("tasks", ()), tell=True)
            for name in body.get("streams", ()):
                source = self.sources.pop(name, None)
                if source:
                    source.close()
                    self._outlets.pop(name).close()

    def _drop_tasks(self, names: Iterable[str], *, tell: bool) -> None:
        for name in names:
            task = self.tasks.pop(name, None)
            if task is None:
                continue
            task.stop()
            self._executor.forget(task)
            for subscription in self._subscriptions.pop(name, ()):
                subscription.close()
            task.close()
            if task.spec.output:
                self._outlets.pop(task.spec.output).close()
            if tell:
                self._leave_inputs(task)

    # -- links -----------------------------------------------------------------------------------

    def _subscribe(self, task: Task, source: Input, inlet: LiveInlet) -> Subscription:
        def follow(after: int, epoch: int) -> Batches:
            if source.site == self.name:
                return self._outlet(source.stream).follow(
                    task.spec.name, after, self._closed.is_set
                )
            return self.peers[source.site].follow(source.stream, task.spec.name, after, epoch)

        link = Subscription(inlet, follow, self._emulation(source.site, self.name), task.fail)
        self._sender(source.site)
        link.start()
        return link

    def _emulation(self, from_site: str, to_site: str) -> Emulation:
        link = self._cluster.link(from_site, to_site)
        return Emulation(link.delay_us / 1e6, link.jitter_us / 1e6, link.bandwidth or 0.0)

    def _arrived(self, task: Task, source: Input, inlet: LiveInlet) -> None:
        self._executor.consider(task)
        if inlet.ack_overdue:
            self._sender(source.site).arrived()

    def _released(self, task: Task) -> None:
        """Downstream acks have moved the task's restart point. A sink has no downstream: its
        restart point moves with every write and is told with the next periodic ack."""
        if task.outlet:
            for source in task.spec.inputs:
                self._sender(source.site).released()

    def _sender(self, site: str) -> AckSender:
        # Not the lock of deploying: a running instance comes here while a drop waits for it.
        with self._wiring:
            if site not in self._senders:
                self._senders[site] = AckSender(
                    site,
                    self._cluster.ack_interval_us / 1e6,
                    partial(self._collect_acks, site),
                    partial(self._send_acks, site),
                    self._emulation(self.name, site),
                )
            return self._senders[site]

    def _collect_acks(self, site: str, level0: bool) -> list[Ack]:
        acks: list[Ack] = []
        for task in list(self.tasks.values()):
            if task.state not in ("running", "done"):
                continue
            point = task.restart_point()
            for index, (source, inlet) in enumerate(
                zip(task.spec.inputs, task.inlets, strict=True)
            ):
                if source.site == site:
                    acks.append(_ack(task, source, inlet, point, index, level0))
        return acks

    def _send_acks(self, site: str, acks: list[Ack]) -> None:
        if site == self.name:
            self._acks({"acks": acks})
        else:
            self.peers[site].call("acks", timeout_s=2.0, acks=acks)

    def _acks(self, body: dict[str, Any]) -> None:
        """Raises the last StaleEpoch, after every other ack of the message was taken."""
        stale: StaleEpoch | None = None
        for ack in body["acks"]:
            try:
                self._ack(ack)
            except StaleEpoch as error:
                stale = error
        if stale:
            raise stale

    def _ack(self, ack: Ack) -> None:
        outlet = self._outlets.get(ack["stream"])
        if outlet is None:
            return
        if ack["received"] is not None:
            outlet.level0(ack["consumer"], ack["received"], ack["epoch"])
        point = RestartPoint(tuple(ack["inputs"]), ack["output"])
        outlet.level1(ack["consumer"], point.inputs[ack["index"]], point)

    def _watch_links(self) -> None:
        """Break connections that have gone silent, so that they are made anew."""
        interval_s = self._cluster.heartbeat_interval_us / 1e6
        limit_s = max(1.0, interval_s * self._cluster.missed_heartbeats)
        while not self._closed.wait(interval_s):
            for links in list(self._subscriptions.values()):
                for link in links:
                    link.check_silence(limit_s)

    def _task_failed(self, task: Task) -> None:
        """Let go of the inputs, so that other consumers of them are not held up."""
        threading.Thread(target=self._leave_inputs, args=(task,), daemon=True).start()

    def _leave_inputs(self, task: Task) -> None:
        for source in task.spec.inputs:
            try:
                self._detach_at(source, task.spec.name)
            except AnabranchError:
                continue  # a site that is gone keeps nothing for us either

    def _detach_at(self, source: Input, consumer: str) -> None:
        if source.site == self.name:
            self._detach({"stream": source.stream, "consumer": consumer})
        else:
            self.peers[source.site].call(
                "detach", timeout_s=2.0, stream=source.stream, consumer=consumer
            )

    def _detach(self, body: dict[str, Any]) -> None:
        outlet = self._outlets.get(body["stream"])
        if outlet:
            outlet.detach(body["consumer"])

    def _outlet(self, stream: str) -> LiveOutlet:
        if stream not in self._outlets:
            raise SiteError(f"site {self.name} does not produce stream {stream}")
        return self._outlets[stream]


def _named(kind: str, name: str, build: Callable[[S], T], spec: S) -> T:
    """`build(spec)`; what is wrong with it is said of the stream or query that asked for it."""
    try:
        return build(spec)
    except AnabranchError as error:
        error.message = f"{kind} {name}: {error.message}"
        raise


def _columns(data: Iterable[dict[str, Any]]) -> list[Column]:
    return [Column.model_validate(one) for one in data]


def _ack(
    task: Task, source: Input, inlet: LiveInlet, point: RestartPoint, index: int, level0: bool
) -> Ack:
    return {
        "stream": source.stream,
        "consumer": task.spec.name,
        "epoch": inlet.epoch,
        "received": inlet.acked() if level0 else None,
        "inputs": list(point.inputs),
        "index": index,
        "output": point.output,
    }
