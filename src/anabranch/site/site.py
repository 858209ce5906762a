"""One site: a gate, a Spark session, the tasks and sources deployed here, and links to others."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

from pyspark.sql import SparkSession

from anabranch.config.cluster import Cluster, SiteConfig
from anabranch.errors import AnabranchError, SiteError
from anabranch.link.gate import Credentials, Gate
from anabranch.link.outlet import LiveOutlet
from anabranch.link.peer import Peers
from anabranch.plan.catalog import StreamDef
from anabranch.plan.operators import Column
from anabranch.plan.tasks import TaskSpec
from anabranch.site.analyse import analyse, check_types
from anabranch.site.build import Builder
from anabranch.site.executor import Executor
from anabranch.site.ingest import Ingest
from anabranch.site.links import Links
from anabranch.site.task import Task

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
        self.tasks: dict[str, Task] = {}
        self.sources: dict[str, Ingest] = {}
        self._outlets: dict[str, LiveOutlet] = {}
        self.peers = Peers(credentials)
        self._links = Links(name, cluster, self.peers, self._outlets, self.tasks)
        self._closed = threading.Event()
        self._gate = Gate(
            str(self._config.listen), credentials, self._actions(), self._outlets.__getitem__
        )
        self._executor = Executor(name, self._config.slots)

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
        self._links.close()
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
            "detach": lambda body: self._links.detach(body["stream"], body["consumer"]),
            "start": self._start,
            "start_sources": self._start_sources,
            "drop": self._drop,
            "acks": lambda body: self._links.take_acks(body["acks"]),
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
        return task.report() | self._links.report(task)

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
        task.on_release = partial(self._links.released, task)
        for index, inlet in enumerate(task.inlets):
            inlet.on_data = partial(self._arrived, task, index)

    def _start(self, body: dict[str, Any]) -> None:
        """`tasks`: name → positions, one per input, behind which the task begins."""
        with self._deploying:
            for name, positions in body["tasks"].items():
                task = self.tasks[name]
                task.start(positions)
                self._links.follow_inputs(task)

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
            self._links.unfollow(task)
            task.close()
            if task.spec.output:
                self._outlets.pop(task.spec.output).close()
            if tell:
                self._links.leave(task)

    def _task_failed(self, task: Task) -> None:
        """Let go of the inputs, so that other consumers of them are not held up."""
        threading.Thread(target=self._links.leave, args=(task,), daemon=True).start()

    def _arrived(self, task: Task, index: int) -> None:
        self._executor.consider(task)
        self._links.arrived(task, index)

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
