"""The deployed things of a site: sources and tasks, their outlets, and who runs their instances."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar

from anabranch.connectors import SINKS
from anabranch.errors import AnabranchError, Fenced, SiteError
from anabranch.link.inlet import LiveInlet
from anabranch.link.messages import (
    Check,
    Checked,
    DropTasks,
    GoOnWithout,
    Prepare,
    SetPositions,
    Start,
    StartSources,
    Urgencies,
)
from anabranch.link.outlet import LiveOutlet
from anabranch.link.wire import Unpack
from anabranch.plan.catalog import StreamDef, TableDef
from anabranch.plan.places import Looked
from anabranch.plan.tasks import TaskInput, TaskSpec
from anabranch.runtime.base import Bell, Runtime
from anabranch.runtime.log import note
from anabranch.site.links.links import Links
from anabranch.site.links.readers import ReadersFile
from anabranch.site.links.states import StateExchange
from anabranch.site.sources.ingest import SourceStream
from anabranch.site.sources.open_stream import OpenStream, PocketPoint
from anabranch.site.tasks.body import Produced
from anabranch.site.tasks.restart_points import PointsFile
from anabranch.site.tasks.sink import SinkTask
from anabranch.site.tasks.snapshots import States
from anabranch.site.tasks.task import Owner, Task
from anabranch.snapshot.state import KeptPieces
from anabranch.stream.batch import END_WATERMARK
from anabranch.stream.restart import FOREVER, RestartPoint, SnapshotName, gather

S = TypeVar("S")
T = TypeVar("T")


PATIENCE_S = 1.0
"""How long something that is not urgent waits for a slot."""
GRACE_S, HANG_S = 2.0, 9.0
"""How long an instance of what is dropped may take to end, at first by itself, and then once it has
been cut off."""
LOOK_S = 0.05


class Runs(Protocol):
    """Runs task instances, and other work that must not run beside them."""

    def consider(self, task: Task) -> None: ...
    def run(self, do: Callable[[], float], *, patience_s: float) -> float | None: ...
    def close(self) -> None: ...


class Builds(Protocol):
    """Makes sources and tasks from their descriptions."""

    def source(self, definition: StreamDef | TableDef, *, resume: bool) -> SourceStream: ...
    def check_source(self, definition: StreamDef | TableDef) -> Looked: ...
    def check_sink(self, spec: TaskSpec) -> Looked: ...
    def task(
        self, spec: TaskSpec, outlets: Mapping[str, LiveOutlet[Any]], owner: Owner, *, resume: bool
    ) -> Task: ...
    def inlets(self, spec: TaskSpec) -> Sequence[LiveInlet[Any]]: ...
    def unpacker(self, source: TaskInput, codec: str | None) -> Unpack: ...
    def pocket_executor(self, name: str) -> Runs: ...
    def forget(self, streams: Iterable[str], tasks: Iterable[str]) -> None: ...


class Deployment:
    """`tasks` and `outlets` are by name; `links` looks at them, too. `forget` is called with a task
    that is dropped and returns those that go with it.
    """

    def __init__(
        self,
        runtime: Runtime,
        tasks: dict[str, Task],
        outlets: dict[str, LiveOutlet[Any]],
        builder: Builds,
        links: Links,
        executor: Runs,
        points: PointsFile,
        readers: ReadersFile,
        states: States,
        exchange: StateExchange,
        forget: Callable[[str], list[str]],
    ) -> None:
        self.tasks = tasks
        self.outlets = outlets
        self.sources: dict[str, SourceStream] = {}
        self.born: dict[str, int] = {}
        """Source → the creation that it is of."""
        self.news = Bell(runtime)
        """The coordinator should look at us."""
        self._runtime = runtime
        self._forget = forget
        self._builder = builder
        self._links = links
        self._executor = executor
        self._pockets: dict[str, Runs] = {}
        self._resumed: set[str] = set()
        """Tasks that ran before this process did."""
        self._points = points
        self._readers = readers
        self._states = states
        self._exchange = exchange
        self._ending: list[Task] = []
        """Dropped, and not ended yet."""

    async def close(self) -> None:
        for source in self.sources.values():
            await self._runtime.blocking(source.close)
        await self._end(self._take_out(self.tasks), tell=False)
        for outlet in self.outlets.values():
            outlet.close()

    # -- deploying, in the order of the steps ----------------------------------------------------

    async def check(self, asked: Check) -> Checked:
        """What is wrong with the sources and sinks that `prepare` would build; otherwise the
        `places` that they read and write, and `problems` with these. Nothing changes.
        """

        def look() -> list[Looked]:
            sources = [
                _named(one.kind, one.name, self._builder.check_source, one) for one in asked.sources
            ]
            sinks = [
                _named("query", one.query, self._builder.check_sink, one) for one in asked.tasks
            ]
            return [*sources, *sinks]

        looked = await self._runtime.blocking(look)
        return Checked(
            places=tuple(place for one in looked for place in one.places),
            problems=tuple(one.problem.report() for one in looked if one.problem),
            notes=tuple(one.note for one in looked if one.note),
        )

    async def prepare(self, asked: Prepare) -> None:
        """Builds all or nothing; raises what is wrong with the first thing that cannot be built."""
        if not asked.resume:
            await self._forget_kept([one.name for one in asked.tasks])

        def build() -> tuple[dict[str, SourceStream], list[Task]]:
            make = partial(self._builder.source, resume=asked.resume)
            sources = {one.name: _named(one.kind, one.name, make, one) for one in asked.sources}
            outlets = self.outlets | {name: source.outlet for name, source in sources.items()}
            make_task = partial(
                self._builder.task, outlets=outlets, owner=self, resume=asked.resume
            )
            return sources, [
                _named("pocket" if spec.pocket else "query", spec.query, make_task, spec)
                for spec in asked.tasks
            ]

        sources, tasks = await self._runtime.blocking(build)
        names = {task.spec.name for task in tasks}
        while there := self._take_out_sources(sources) + self._take_out(names):
            await self._end(there, tell=False)
        for name, source in sources.items():
            self.sources[name] = source
            self.outlets[name] = source.outlet
        self.born |= {one.name: one.born for one in asked.sources}
        self._resumed = self._resumed | names if asked.resume else self._resumed - names
        for task in tasks:
            self.install(task)

    def install(self, task: Task) -> None:
        self.tasks[task.spec.name] = task
        if task.spec.pocket:  # a thread of its own: others need not wait while it calls the world
            self._pockets[task.spec.name] = self._builder.pocket_executor(task.spec.name)
        if task.outlet and task.spec.output:
            self.outlets[task.spec.output] = task.outlet
            if isinstance(stream := self.sources.get(task.spec.output), OpenStream):
                stream.pocket = task.spec.name

    async def place(self, asked: SetPositions) -> None:
        """Sets, before the start, the positions after which outputs and sources go on."""
        for stream, position in asked.outputs.items():
            self._links.outlet(stream).start_at(position)
        for name, position in asked.sources.items():
            self._source(name).resume(position)
        for stream, position in (asked.outputs | asked.sources).items():
            outlet = self._links.outlet(stream)
            self._readers.await_back(
                stream, outlet, outlet.last if position == FOREVER else position
            )

    async def start(self, asked: Start) -> None:
        started = []
        for name, begin in asked.tasks.items():
            task = self.tasks.get(name)
            if task:
                await task.start(await self._beginning(task, begin.point), begin.epoch)
            if task is None or self.tasks.get(name) is not task:
                raise SiteError(f"{name} was dropped before it began")
            started.append(task)
            if task.state == "failed":  # its state is gone; the others go on
                continue
            _note("started", task)
            self._links.follow_inputs(task)
        await self._links.keep_points(started)

    async def _beginning(self, task: Task, point: RestartPoint) -> RestartPoint:
        """The point where a task begins. A pocket begins after what its stream has of it, which no
        other run of it would give.
        """
        stream = self.sources.get(task.spec.output or "")
        if not (task.spec.pocket and isinstance(stream, OpenStream)):
            return point
        if task.spec.name not in self._resumed:
            return replace(point, output=stream.outlet.last)
        if not task.spec.pocket.asks_the_world:
            return point
        return await self._runtime.blocking(stream.go_on_after, point, task.spec.born)

    def giving(self, task: Task, pieces: Sequence[Any], produced: Produced) -> None:
        """Keeps what a pocket is about to give, if it depends on more than its input: nobody could
        give it again.
        """
        stream = self.sources.get(task.spec.output or "")
        if task.spec.pocket and task.spec.pocket.asks_the_world and isinstance(stream, OpenStream):
            inputs = (FOREVER,) if produced.watermark == END_WATERMARK else produced.needless
            stream.keep_given(pieces, produced.watermark, PocketPoint(task.spec.born, inputs))

    async def hurry(self, asked: Urgencies) -> None:
        """Takes new sub-deadlines of running tasks."""
        for name, urgency in asked.tasks.items():
            if task := self.tasks.get(name):
                task.timeliness.urgency = urgency

    async def go_on_without(self, asked: GoOnWithout) -> None:
        task = self.tasks.get(asked.task)
        if not isinstance(task, SinkTask):
            raise SiteError(f"{asked.task} does not run here now")
        await task.go_on_without(asked.first, asked.last)

    async def start_sources(self, asked: StartSources) -> None:
        for name in asked.sources:
            self._source(name).start()
            note("source started", f"stream {name} is read", query=name)

    async def restart_points(self) -> dict[str, RestartPoint]:
        """Task → where it would restart: for running tasks, for tasks of before a kill, and for all
        that read what is produced here. Points are kept before they are told: whoever learns of one
        releases what lies before it.
        """
        await self._links.keep_points(
            [task for task in self.tasks.values() if task.state != "waiting"]
        )
        read = [outlet.readers() for outlet in self.outlets.values()]
        return gather([self._points.all(), *read])

    def _source(self, name: str) -> SourceStream:
        source = self.sources.get(name)
        if source is None:
            raise SiteError(f"stream {name} was dropped before it began")
        return source

    # -- running ---------------------------------------------------------------------------------

    def consider(self, task: Task) -> None:
        """Takes note that there may be something for it to do."""
        self._pockets.get(task.spec.name, self._executor).consider(task)

    def in_slot(self, do: Callable[[], float]) -> float | None:
        """Runs `do` between instances, if there is time for it soon. Called from a thread that may
        wait.
        """
        return self._executor.run(do, patience_s=PATIENCE_S)

    def released(self, task: Task) -> None:
        self._links.released(task)

    def stood_by_for(self, task: Task) -> bool:
        route = self._links.routes[task.spec.output] if task.spec.output else None
        return route is not None and route.standby is not None

    async def fetch_state(self, task: Task, name: SnapshotName) -> KeptPieces | None:
        return await self._exchange.fetch(task.spec.name, name)

    def ended_early(self, task: Task) -> None:
        if task.role == "primary":  # of a standby nobody is told
            self._links.unfollow(task)
            self._links.released(task)

    def failed(self, task: Task) -> None:
        """Lets go of the inputs, so that other consumers of them are not delayed; but not of what
        another run needs that is going to take over.
        """
        if isinstance(task.error, Fenced):  # its successor needs what it read
            _note("superseded", task, task.error.line())
            self._runtime.spawn(self.discard(task), f"{task.spec.name}-superseded")
            return
        if task.error:
            _note("failed", task, task.error.line(), wrong=True)
        if task.role == "standby":
            self._forget(task.spec.name)
            return
        self._links.unfollow(task)
        if not (task.cut_off and self._links.replaceable(task)):
            self._runtime.spawn(self._links.leave(task), f"{task.spec.name}-leave")

    # -- for protection --------------------------------------------------------------------------

    async def install_standby(self, spec: TaskSpec, *, resume: bool = False) -> Task:
        build = partial(self._builder.task, spec, self.outlets, self, resume=resume)
        await self._end(self._take_out([spec.name]), tell=False)
        task = await self._runtime.blocking(build)
        task.role = "standby"
        while there := self._take_out([spec.name]):
            await self._end(there, tell=False)
        self.install(task)
        _note("standing by", task)
        return task

    def new_inlets(self, task: Task) -> Sequence[LiveInlet[Any]]:
        return self._builder.inlets(task.spec)

    def unpacker(self, task: Task, index: int, codec: str | None) -> Unpack:
        return self._builder.unpacker(task.spec.inputs[index], codec)

    def tell(self) -> None:
        self.news.ring()

    def wall_clock(self) -> float:
        return time.time()

    async def discard(self, task: Task) -> None:
        """Ends a task that another site runs: it does no more, nor does the sink that went there
        with it.
        """
        if self.tasks.get(task.spec.name) is task:
            along = [
                name
                for name, one in self.tasks.items()
                if one.spec.sink
                and SINKS.find(one.spec.sink.name).shared
                and one.spec.inputs[0].stream == task.spec.output
            ]
            await self._end(self._take_out([*along, task.spec.name]), tell=False)
        self.tell()

    # -- dropping --------------------------------------------------------------------------------

    async def drop(self, asked: DropTasks) -> None:
        """Drops things. When this returns, nothing of them runs or writes any more, as far as
        something that hangs can be kept from it. What is waited for delays nobody by then.
        """
        waiting = [
            name
            for name in asked.standbys
            if name in self.tasks and self.tasks[name].role == "standby"
        ]
        gone = [name for name in asked.tasks if self._is_meant(name, asked.born)]
        sources = [
            name
            for name in asked.sources
            if self.born.get(name, 0) <= asked.born.get(name, FOREVER)
        ]
        stood_by, tasks = self._take_out(waiting), self._take_out(gone)
        closing = self._take_out_sources(sources)
        await self._end(stood_by, tell=False)
        await self._end([*tasks, *closing], tell=not asked.resume)
        while any(one.spec.name in gone for one in self._ending):  # somebody else has dropped it
            await self._runtime.sleep(LOOK_S)
        if not asked.resume:
            gone = [name for name in gone if name not in self.tasks]
            sources = [name for name in sources if name not in self.sources]
            await self._forget_kept(gone)
            await self._runtime.blocking(self._builder.forget, sources, gone)

    async def _forget_kept(self, tasks: Sequence[str]) -> None:
        """The points first: one names no state that is gone."""
        await self._runtime.blocking(self._points.forget, tasks)
        await self._runtime.blocking(self._states.forget, tasks)

    def _is_meant(self, task: str, born: Mapping[str, int]) -> bool:
        """Whether this creation is meant. The order may be late: what was created since under the
        same name stays.
        """
        there = self.tasks.get(task)
        return there is None or there.spec.born <= born.get(task, FOREVER)

    def _take_out_sources(self, names: Iterable[str]) -> list[Task | SourceStream]:
        """Takes sources out of the site; they are still to be ended."""
        gone: list[Task | SourceStream] = []
        for name in names:
            self.born.pop(name, None)
            if source := self.sources.pop(name, None):
                gone.append(source)
                del self.outlets[name]
        return gone

    def _take_out(self, names: Iterable[str]) -> list[Task | SourceStream]:
        """The same as `_take_out_sources`, for tasks and those that go with them."""
        gone: list[Task | SourceStream] = []
        for name in list(names):
            if (task := self.tasks.pop(name, None)) is None:
                continue
            gone += self._take_out(self._forget(name))
            task.stop()
            self._links.unfollow(task)
            gone.append(task)
            self._ending.append(task)
        return gone

    async def _end(self, gone: Sequence[Task | SourceStream], *, tell: bool) -> None:
        """Ends all at once: one that hangs is left alone after a while, and delays no other."""
        await self._runtime.outcomes(
            [
                self._end_task(one, tell=tell) if isinstance(one, Task) else self._close(one)
                for one in gone
            ]
        )

    async def _close(self, source: SourceStream) -> None:
        await self._runtime.blocking(source.close)
        source.outlet.close()
        await source.outlet.rest()

    async def _end_task(self, task: Task, *, tell: bool) -> None:
        try:
            if own := self._pockets.pop(task.spec.name, None):
                await self._runtime.blocking(own.close)  # not for ever, if it hangs
            elif not await task.settled(GRACE_S):
                task.abandon()
                if not await task.settled(HANG_S):
                    text = f"{task.spec.name} hangs, and is left alone: nobody waits for it"
                    _note("left alone", task, text, wrong=True)
            closing = self._runtime.spawn(task.close(), f"closing {task.spec.name}")
            if await closing.within(HANG_S):
                await closing.join()
            _note("dropped", task)
        finally:
            self._ending.remove(task)
            self._drop_output(task)
        if task.outlet and self.outlets.get(task.spec.output or "") is not task.outlet:
            await task.outlet.rest()
        if tell and task.role == "primary":  # a standby reads under its primary's name
            await self._links.leave(task)

    def _drop_output(self, task: Task) -> None:
        """Drops the task's output. A pocket's output stream was there before it and stays."""
        output = task.spec.output
        if output and isinstance(stream := self.sources.get(output), OpenStream):
            stream.pocket = None
            stream.outlet.produced_by(None)
        elif output and task.outlet:
            if self.outlets.get(output) is task.outlet:
                del self.outlets[output]
            task.outlet.close()


def _note(event: str, task: Task, text: str = "", *, wrong: bool = False) -> None:
    spec = task.spec
    note(
        event,
        text or f"{spec.name} {event} as {task.role}",
        wrong=wrong,
        site=spec.site,
        query=spec.query,
        task=spec.name,
        epoch=task.epoch,
    )


def _named(kind: str, name: str, build: Callable[[S], T], spec: S) -> T:
    """`build(spec)`; an error in it names the stream or query that asked for it."""
    try:
        return build(spec)
    except AnabranchError as error:
        error.message = f"{kind} {name}: {error.message}"
        raise
