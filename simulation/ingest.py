"""The product's reading of a source, with its journal, driven in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anabranch.errors import AnabranchError, CannotResume
from anabranch.link.outlet import LiveOutlet
from anabranch.link.reports import SourceReport
from anabranch.plan.catalog import StreamDef
from anabranch.runtime.base import Spawned
from anabranch.site.sources.intake import ArrivalClock, Intake
from anabranch.site.sources.journal import Journal
from anabranch.site.sources.pace import Need, Next, Pause, Room
from anabranch.site.sources.reading import Reading
from anabranch.stream.restart import FOREVER
from simulation.clock import Killed, Process
from simulation.outlets import SourceOutlet
from simulation.reports import a_source
from simulation.topics import WIRE, TopicSource

ROOM_S = 0.05
SEGMENTS = (3, 1000)
"""Entries of one file of a journal, which so has several or one."""
Refused = Callable[[str, CannotResume, bool], None]
"""What a stream says that cannot go on, and whether that is final."""


class SimIngest:
    """As `site.sources.ingest.Ingest`, whose thread is a coroutine here. What is done between two
    waits happens at once, but a process may die in the middle of it. `needless` hears up to where
    nobody needs the stream."""

    def __init__(
        self,
        process: Process,
        stream: StreamDef,
        outlet: SourceOutlet,
        source: TopicSource,
        journal: Journal,
        heartbeat_s: float,
        refused: Refused,
        needless: Callable[[int], None],
        *,
        synced: bool,
    ) -> None:
        self.outlet: LiveOutlet[Any] = outlet
        self.error: AnabranchError | None = None
        self.state = "waiting"
        self._process = process
        self._stream = stream
        self._source = source
        self._journal = journal
        self._heartbeat_s = heartbeat_s
        self._refused = refused
        self._needless = needless
        clock = ArrivalClock(process.wall_ns, lambda: int(process.now() * 1e9))
        self.reading = Reading(
            stream,
            outlet,
            source,
            Intake(stream, WIRE, None, lambda rows: None, clock),
            journal,
            heartbeat_s,
            synced=synced,
            monotonic=process.now,
        )
        self._driven: Spawned[None] | None = None

    def resume(self, position: int) -> None:
        """Refused at times because too little is known yet of those who read: it is tried again."""
        try:
            self.reading.resume(position)
            if position == FOREVER:
                self._needless(self.outlet.last)
        except CannotResume as error:
            self._refused(self._stream.name, error, False)
            raise

    def start(self) -> None:
        if self._driven is None:
            self.state = "running"
            self._driven = self._process.spawn(self._run(), f"read-{self._stream.name}")
            self._beat()

    def close(self) -> None:
        self.state = "stopped"
        if self._driven:
            self._driven.cancel()
        self._journal.close()

    def report(self) -> SourceReport:
        error = self.error.report() if self.error else None
        return a_source(
            self._stream.name,
            state=self.state,
            site=self._stream.site,
            error=error,
            problem=self.reading.problem,
        )

    def _beat(self) -> None:
        if self.state == "running":
            try:
                self.reading.beat()
            except Killed as killed:
                self._process.kill(killed.lasts)
            self._process.later(self._heartbeat_s, self._beat)

    async def _run(self) -> None:
        try:
            await self._drive()
        except AnabranchError as error:
            self.state, self.error = "failed", error
            if not isinstance(error, CannotResume):
                raise
            self._refused(self._stream.name, error, True)
        else:
            self.state = "ended"
            self.outlet.end()

    async def _drive(self) -> None:
        steps = self.reading.run()
        try:
            need = await self._process.in_thread(_sent, steps.send, None)
            while True:
                await self._wait(need)
                need = await self._process.in_thread(self._step, steps, need)
        except _Over:
            return
        finally:
            steps.close()

    async def _wait(self, need: Need) -> None:
        match need:
            case Pause():
                await self._process.sleep(need.seconds)
            case Room():
                while not await self.outlet.room_within(ROOM_S):
                    await self._process.sleep(ROOM_S)  # a closed outlet has none at once
            case Next():
                await self._process.sleep(self._source.wait_s)

    def _step(self, steps: Any, need: Need) -> Any:
        """On to the next need."""
        try:
            answer = next(need.tables, None) if isinstance(need, Next) else None
        except AnabranchError as error:
            return _sent(steps.throw, error)
        return _sent(steps.send, answer)


class _Over(Exception):
    """The reading has come to its end."""


def _sent(do: Callable[[Any], Any], value: Any) -> Any:
    """A coroutine must not raise StopIteration."""
    try:
        return do(value)
    except StopIteration:
        raise _Over from None
