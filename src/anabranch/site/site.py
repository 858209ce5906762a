"""One site: a gate, a Spark session, the tasks and sources deployed here, and links to others."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter
from pyspark.sql import SparkSession

from anabranch.config.cluster import Cluster, SiteConfig
from anabranch.errors import AnabranchError, SiteError
from anabranch.link.gate import Credentials, Gate
from anabranch.link.inlet import LiveInlet
from anabranch.link.outlet import LiveOutlet
from anabranch.link.peer import Peers
from anabranch.plan.catalog import StreamDef, TableDef
from anabranch.plan.operators import Column
from anabranch.plan.protection import SHARED_SINKS
from anabranch.plan.tasks import TaskSpec
from anabranch.site.analyse import analyse, check_types
from anabranch.site.build import Builder
from anabranch.site.executor import Executor
from anabranch.site.links import Links
from anabranch.site.open_stream import OpenStream, decoded, encoded
from anabranch.site.points import PointsFile
from anabranch.site.protection import Protection
from anabranch.site.readers import ReadersFile
from anabranch.site.source import Source
from anabranch.site.task import Task
from anabranch.stream.restart import gather, point_of

_SOURCE: TypeAdapter[StreamDef | TableDef] = TypeAdapter(StreamDef | TableDef)
S = TypeVar("S")
T = TypeVar("T")


class Site:
    """Everything a site does is asked for through its gate's actions.

    Deploying takes four steps, so that a script is deployed whole or not at all and no tuple passes
    before everyone is there: `prepare` (build and check), `attach` (producers keep tuples for their
    consumers), `start` (tasks follow their inputs), `start_sources`.
    """

    def __init__(
        self,
        name: str,
        cluster: Cluster,
        credentials: Credentials,
        spark: SparkSession,
        state: Path | None = None,
    ) -> None:
        """With a `state` folder the site can be killed and started again where it was."""
        self.name = name
        self._cluster = cluster
        self._config = cluster.sites.get(name) or SiteConfig(name=name)
        self._spark = spark
        if state:
            state.mkdir(parents=True, exist_ok=True)
        self._builder = Builder(cluster, spark, state)
        self._points = PointsFile(state / "points.json" if state else None)
        self._deploying = threading.RLock()
        self.tasks: dict[str, Task] = {}
        self.sources: dict[str, Source] = {}
        self._outlets: dict[str, LiveOutlet] = {}
        self.peers = Peers(credentials)
        self._readers = ReadersFile(state / "readers.json" if state else None)
        self._links = Links(
            name, cluster, self.peers, self._outlets, self.tasks, self._points, self._readers
        )
        self._protection = Protection(name, cluster, self, self._links, self.peers)
        self.on_news: Callable[[], None] = lambda: None
        self._closed = threading.Event()
        self._gate = Gate(
            str(self._config.listen), credentials, self._actions(), self._outlets.__getitem__
        )
        self._executor = Executor(name, self._config.slots)
        self._pockets: dict[str, Executor] = {}

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
        self._protection.close()
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
            "attach": self._attach,
            "detach": lambda body: self._links.detach(
                body["stream"], body["consumer"], body.get("epoch")
            ),
            "place": self._place,
            "points": lambda body: self.restart_points(),
            "start": self._start,
            "start_sources": self._start_sources,
            "drop": self._drop,
            **self._protection.actions(),
            "acks": lambda body: self._links.take_acks(body["acks"]),
            "schema": lambda body: encoded(self._open_stream(body).schema().empty_table()),
            "push": lambda body: self._open_stream(body).push(decoded(body["rows"])),
            "end": lambda body: self._open_stream(body).end(),
        }

    def report(self) -> dict[str, Any]:
        return {
            "site": self.name,
            "address": self.address,
            "pid": os.getpid(),
            "tasks": [self._task_report(task) for task in list(self.tasks.values())],
            "sources": [source.report() for source in list(self.sources.values())],
            "rulers": self._links.routes.rulers(),
            "kept": {name: outlet.kept() for name, outlet in list(self._outlets.items())},
            "traffic": {
                name: asdict(one.traffic)
                for name, one in list(self._outlets.items())
                if one.traffic.tuples
            },
        }

    def _task_report(self, task: Task) -> dict[str, Any]:
        return task.report() | self._links.report(task) | self._protection.report(task)

    def _analyse(self, body: dict[str, Any]) -> Any:
        columns, aggregate = _columns(body["columns"]), body.get("aggregate", False)
        return analyse(self._spark, columns, body["expressions"], aggregate=aggregate)

    def restart_points(self) -> dict[str, dict[str, Any]]:
        """Task → where it would restart: of those that run, of those before we were killed, and of
        all that read what is produced here. They are kept before they are told: who hears of one
        lets go of what lies before it."""
        running = [(name, task) for name, task in list(self.tasks.items())
                   if task.state != "waiting"]  # fmt: skip
        self._points.save(running)
        read = [outlet.readers() for outlet in list(self._outlets.values())]
        found = gather([self._points.all(), *read])
        return {name: asdict(point) for name, point in found.items()}

    def _prepare(self, body: dict[str, Any]) -> None:
        """Build all or nothing; raises what is wrong with the first thing that cannot be built.
        `resume`: they ran here before, and what they left behind is used again."""
        resume = body.get("resume", False)
        defined = [_SOURCE.validate_python(one) for one in body["sources"]]
        specs = [TaskSpec.model_validate(one) for one in body["tasks"]]
        if not resume:
            self._points.forget(spec.name for spec in specs)
        with self._deploying:
            make = partial(self._builder.source, resume=resume)
            sources = {one.name: _named(one.kind, one.name, make, one) for one in defined}
            outlets = self._outlets | {name: source.outlet for name, source in sources.items()}
            build = partial(self._builder.task, outlets=outlets, resume=resume)
            tasks = [_named("pocket" if spec.pocket else "query", spec.query, build, spec)
                     for spec in specs]  # fmt: skip
            for name, source in sources.items():
                self.sources[name] = source
                self._outlets[name] = source.outlet
            for task in tasks:
                self._install(task)

    def _install(self, task: Task) -> None:
        self.tasks[task.spec.name] = task
        if task.spec.pocket:  # a thread of its own: others need not wait while it calls the world
            self._pockets[task.spec.name] = Executor(f"pocket-{task.spec.name}", 1)
        if task.outlet and task.spec.output:
            self._outlets[task.spec.output] = task.outlet
            if isinstance(stream := self.sources.get(task.spec.output), OpenStream):
                stream.pocket = task.spec.name
            task.outlet.on_room = partial(self._executor_of(task).consider, task)
        task.on_failure = self._let_go
        task.on_early_end = self._ended_early
        task.on_release = partial(self._links.released, task)
        self._listen(task, task.inlets)

    def _listen(self, task: Task, inlets: Sequence[LiveInlet]) -> None:
        for index, inlet in enumerate(inlets):
            inlet.on_data = partial(self._arrived, task, index)

    def _executor_of(self, task: Task) -> Executor:
        return self._pockets.get(task.spec.name, self._executor)

    def _place(self, body: dict[str, Any]) -> None:
        """Before the start: the positions behind which outputs and sources go on."""
        with self._deploying:
            for stream, position in body["outputs"].items():
                self._outlet(stream).start_at(position)
            for name, position in body["sources"].items():
                self.sources[name].resume(position)
            for stream, position in (body["outputs"] | body["sources"]).items():
                self._readers.await_back(stream, self._outlet(stream), position)

    def _start(self, body: dict[str, Any]) -> None:
        """`tasks`: name → the restart point at which the task begins."""
        with self._deploying:
            for name, point in body["tasks"].items():
                task = self.tasks[name]
                task.start(point_of({"output": 0, **point}), point.get("epoch", 0))
                self._links.follow_inputs(task)
            self._points.save(list(self.tasks.items()))

    def _start_sources(self, body: dict[str, Any]) -> None:
        with self._deploying:
            for name in body["sources"]:
                self.sources[name].start()

    def _drop(self, body: dict[str, Any]) -> None:
        """`standbys`: drop these tasks only if they still stand by."""
        with self._deploying:
            waiting = [name for name in body.get("standbys", ())
                       if name in self.tasks and self.tasks[name].role == "standby"]  # fmt: skip
            self._drop_tasks(waiting, tell=False)
            self._drop_tasks(body.get("tasks", ()), tell=True)
            self._points.forget(body.get("tasks", ()))
            for name in body.get("sources", ()):
                source = self.sources.pop(name, None)
                if source:
                    source.close()
                    self._outlets.pop(name).close()

    def _drop_tasks(self, names: Iterable[str], *, tell: bool) -> None:
        for name in names:
            task = self.tasks.pop(name, None)
            if task is None:
                continue
            self._drop_tasks(self._protection.forget(name), tell=False)
            task.stop()
            if own := self._pockets.pop(name, None):
                own.close()  # which does not wait for ever for one that hangs
            else:
                self._executor.forget(task)
            self._links.unfollow(task)
            task.close()
            self._drop_output(task)
            if tell and task.role == "primary":  # a standby reads under its primary's name
                self._links.leave(task)

    def _drop_output(self, task: Task) -> None:
        """A pocket's output stream was there before it and stays."""
        output = task.spec.output
        if output and isinstance(stream := self.sources.get(output), OpenStream):
            stream.pocket = None
            stream.outlet.forget_producer()
        elif output:
            self._outlets.pop(output).close()

    # -- protection ------------------------------------------------------------------------------

    def learn(self, news: dict[str, Any]) -> None:
        """From the coordinator: where all sites are, and who produces what."""
        self.peers.update(news["addresses"])
        self._protection.learn(news["routes"])

    def install_standby(self, spec: TaskSpec, *, resume: bool = False) -> Task:
        with self._deploying:
            self._drop_tasks([spec.name], tell=False)
            task = self._builder.task(spec, outlets=self._outlets, resume=resume)
            task.role = "standby"
            self._install(task)
            return task

    def new_inlets(self, task: Task) -> Sequence[LiveInlet]:
        inlets = self._builder.inlets(task.spec)
        self._listen(task, inlets)
        return inlets

    def consider(self, task: Task) -> None:
        self._executor_of(task).consider(task)

    def ruling(self, task: Task) -> None:
        """A task here has taken over: a restart would begin at its point."""
        self._points.save([(task.spec.name, task)])
        self.on_news()

    def tell(self) -> None:
        """The coordinator should look at us."""
        self.on_news()

    def discard(self, task: Task) -> None:
        """Another site runs it: we do no more, nor does the sink that went there with it."""
        with self._deploying:
            if self.tasks.get(task.spec.name) is task:
                along = [name for name, one in self.tasks.items()
                         if one.spec.sink and one.spec.sink.name in SHARED_SINKS
                         and one.spec.inputs[0].stream == task.spec.output]  # fmt: skip
                self._drop_tasks([*along, task.spec.name], tell=False)
        self.on_news()

    # -- leaving ---------------------------------------------------------------------------------

    def _ended_early(self, task: Task) -> None:
        if task.role == "primary":  # a standby has let go of nothing that its primary needs
            self._let_go(task)

    def _let_go(self, task: Task) -> None:
        """Let go of the inputs, so that other consumers of them are not held up."""
        if task.role == "standby":
            self._protection.forget(task.spec.name)
            return

        def leave() -> None:
            self._links.unfollow(task)
            self._links.leave(task)

        threading.Thread(target=leave, name=f"{task.spec.name}-leave", daemon=True).start()

    def _arrived(self, task: Task, index: int) -> None:
        self._executor_of(task).consider(task)
        self._links.arrived(task, index)

    def _attach(self, body: dict[str, Any]) -> int:
        """Keep tuples for a consumer from now on, or from behind `after`."""
        outlet = self._outlet(body["stream"])
        known = body.get("point")
        return outlet.attach(
            body["consumer"],
            after=body.get("after"),
            point=point_of(known) if known else None,
            epoch=body.get("epoch", 0),
            lease=body.get("lease", False),
        )

    def _open_stream(self, body: dict[str, Any]) -> OpenStream:
        name = body["stream"]
        found = self.sources.get(name)
        if not isinstance(found, OpenStream):
            raise SiteError(
                f"site {self.name} has no stream {name} to push into",
                remedy="Only a stream without a source takes rows from programs.",
            )
        return found

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
