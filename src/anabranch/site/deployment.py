"""What is deployed at a site: sources and tasks, their outlets, and who runs their instances."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, TypeVar

from pydantic import TypeAdapter

from anabranch.errors import AnabranchError
from anabranch.link.inlet import LiveInlet
from anabranch.link.outlet import LiveOutlet
from anabranch.plan.catalog import StreamDef, TableDef
from anabranch.plan.protection import SHARED_SINKS
from anabranch.plan.tasks import TaskSpec
from anabranch.site.build import Builder
from anabranch.site.executor import Executor
from anabranch.site.links import Links
from anabranch.site.open_stream import OpenStream
from anabranch.site.points import PointsFile
from anabranch.site.readers import ReadersFile
from anabranch.site.source import Source
from anabranch.site.task import Task
from anabranch.stream.restart import gather, point_of

_SOURCE: TypeAdapter[StreamDef | TableDef] = TypeAdapter(StreamDef | TableDef)
S = TypeVar("S")
T = TypeVar("T")


class Deployment:
    """`tasks` and `outlets` are by name; `links` looks at them, too. `forget` is told of a task
    that is dropped and says which others go with it; `on_news` is called when the coordinator
    should look at us."""

    def __init__(
        self,
        tasks: dict[str, Task],
        outlets: dict[str, LiveOutlet],
        builder: Builder,
        links: Links,
        executor: Executor,
        points: PointsFile,
        readers: ReadersFile,
    ) -> None:
        self.tasks = tasks
        self.outlets = outlets
        self.sources: dict[str, Source] = {}
        self.forget: Callable[[str], list[str]] = lambda task: []
        self.on_news: Callable[[], None] = lambda: None
        self._builder = builder
        self._links = links
        self._executor = executor
        self._pockets: dict[str, Executor] = {}
        self._points = points
        self._readers = readers
        self._changing = threading.RLock()

    def close(self) -> None:
        for source in self.sources.values():
            source.close()
        self._drop_tasks(list(self.tasks), tell=False)
        for outlet in self.outlets.values():
            outlet.close()

    # -- deploying, in the order of the steps ----------------------------------------------------

    def check(self, body: dict[str, Any]) -> None:
        """What is wrong with the sources and sinks that `prepare` would build. Nothing changes."""
        for one in body["sources"]:
            source = _SOURCE.validate_python(one)
            _named(source.kind, source.name, self._builder.check_source, source)
        for one in body["tasks"]:
            spec = TaskSpec.model_validate(one)
            _named("query", spec.query, self._builder.check_sink, spec)

    def prepare(self, body: dict[str, Any]) -> None:
        """Build all or nothing; raises what is wrong with the first thing that cannot be built.
        `resume`: they ran here before, and what they left behind is used again."""
        resume = body.get("resume", False)
        defined = [_SOURCE.validate_python(one) for one in body["sources"]]
        specs = [TaskSpec.model_validate(one) for one in body["tasks"]]
        if not resume:
            self._points.forget(spec.name for spec in specs)
        with self._changing:
            make = partial(self._builder.source, resume=resume)
            sources = {one.name: _named(one.kind, one.name, make, one) for one in defined}
            outlets = self.outlets | {name: source.outlet for name, source in sources.items()}
            build = partial(self._builder.task, outlets=outlets, resume=resume)
            tasks = [_named("pocket" if spec.pocket else "query", spec.query, build, spec)
                     for spec in specs]  # fmt: skip
            for name, source in sources.items():
                self.sources[name] = source
                self.outlets[name] = source.outlet
            for task in tasks:
                self.install(task)

    def install(self, task: Task) -> None:
        self.tasks[task.spec.name] = task
        if task.spec.pocket:  # a thread of its own: others need not wait while it calls the world
            self._pockets[task.spec.name] = Executor(f"pocket-{task.spec.name}", 1)
        if task.outlet and task.spec.output:
            self.outlets[task.spec.output] = task.outlet
            if isinstance(stream := self.sources.get(task.spec.output), OpenStream):
                stream.pocket = task.spec.name
            task.outlet.on_room = partial(self.consider, task)
        task.on_failure = self._let_go
        task.on_early_end = self._ended_early
        task.on_release = partial(self._links.released, task)
        self._listen(task, task.inlets)

    def place(self, body: dict[str, Any]) -> None:
        """Before the start: the positions behind which outputs and sources go on."""
        with self._changing:
            for stream, position in body["outputs"].items():
                self._links.outlet(stream).start_at(position)
            for name, position in body["sources"].items():
                self.sources[name].resume(position)
            for stream, position in (body["outputs"] | body["sources"]).items():
                self._readers.await_back(stream, self._links.outlet(stream), position)

    def start(self, body: dict[str, Any]) -> None:
        """`tasks`: name → the restart point at which the task begins."""
        with self._changing:
            for name, point in body["tasks"].items():
                task = self.tasks[name]
                task.start(point_of({"output": 0, **point}), point.get("epoch", 0))
                self._links.follow_inputs(task)
            self._points.save(list(self.tasks.items()))

    def start_sources(self, body: dict[str, Any]) -> None:
        with self._changing:
            for name in body["sources"]:
                self.sources[name].start()

    def restart_points(self) -> dict[str, dict[str, Any]]:
        """Task → where it would restart: of those that run, of those before we were killed, and of
        all that read what is produced here. They are kept before they are told: who hears of one
        lets go of what lies before it."""
        running = [(name, task) for name, task in list(self.tasks.items())
                   if task.state != "waiting"]  # fmt: skip
        self._points.save(running)
        read = [outlet.readers() for outlet in list(self.outlets.values())]
        found = gather([self._points.all(), *read])
        return {name: asdict(point) for name, point in found.items()}

    # -- running ---------------------------------------------------------------------------------

    def consider(self, task: Task) -> None:
        """There may be something for it to do."""
        self._pockets.get(task.spec.name, self._executor).consider(task)

    def _listen(self, task: Task, inlets: Sequence[LiveInlet]) -> None:
        for index, inlet in enumerate(inlets):
            inlet.on_data = partial(self._arrived, task, index)

    def _arrived(self, task: Task, index: int) -> None:
        self.consider(task)
        self._links.arrived(task, index)

    def _ended_early(self, task: Task) -> None:
        if task.role == "primary":  # a standby has let go of nothing that its primary needs
            self._let_go(task)

    def _let_go(self, task: Task) -> None:
        """Let go of the inputs, so that other consumers of them are not held up."""
        if task.role == "standby":
            self.forget(task.spec.name)
            return

        def leave() -> None:
            self._links.unfollow(task)
            self._links.leave(task)

        threading.Thread(target=leave, name=f"{task.spec.name}-leave", daemon=True).start()

    # -- for protection --------------------------------------------------------------------------

    def install_standby(self, spec: TaskSpec, *, resume: bool = False) -> Task:
        with self._changing:
            self._drop_tasks([spec.name], tell=False)
            task = self._builder.task(spec, outlets=self.outlets, resume=resume)
            task.role = "standby"
            self.install(task)
            return task

    def new_inlets(self, task: Task) -> Sequence[LiveInlet]:
        inlets = self._builder.inlets(task.spec)
        self._listen(task, inlets)
        return inlets

    def ruling(self, task: Task) -> None:
        """A task here has taken over: a restart would begin at its point."""
        self._points.save([(task.spec.name, task)])
        self.on_news()

    def tell(self) -> None:
        self.on_news()

    def discard(self, task: Task) -> None:
        """Another site runs it: we do no more, nor does the sink that went there with it."""
        with self._changing:
            if self.tasks.get(task.spec.name) is task:
                along = [name for name, one in self.tasks.items()
                         if one.spec.sink and one.spec.sink.name in SHARED_SINKS
                         and one.spec.inputs[0].stream == task.spec.output]  # fmt: skip
                self._drop_tasks([*along, task.spec.name], tell=False)
        self.on_news()

    # -- dropping --------------------------------------------------------------------------------

    def drop(self, body: dict[str, Any]) -> None:
        """`standbys`: drop these tasks only if they still stand by."""
        with self._changing:
            waiting = [name for name in body.get("standbys", ())
                       if name in self.tasks and self.tasks[name].role == "standby"]  # fmt: skip
            self._drop_tasks(waiting, tell=False)
            self._drop_tasks(body.get("tasks", ()), tell=True)
            self._points.forget(body.get("tasks", ()))
            for name in body.get("sources", ()):
                source = self.sources.pop(name, None)
                if source:
                    source.close()
                    self.outlets.pop(name).close()

    def _drop_tasks(self, names: Iterable[str], *, tell: bool) -> None:
        for name in names:
            task = self.tasks.pop(name, None)
            if task is None:
                continue
            self._drop_tasks(self.forget(name), tell=False)
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
            self.outlets.pop(output).close()


def _named(kind: str, name: str, build: Callable[[S], T], spec: S) -> T:
    """`build(spec)`; what is wrong with it is said of the stream or query that asked for it."""
    try:
        return build(spec)
    except AnabranchError as error:
        error.message = f"{kind} {name}: {error.message}"
        raise
