"""Calls and connections between processes that die, pause and lose sight of each other.

A dead process refuses, a paused or cut off one is silent. A call may be lost on either way. What a
connection carries comes in order; a cut breaks it, or holds it up until the cut is over.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from anabranch.errors import AnabranchError, Refused, SiteError
from anabranch.link.gate import serve
from anabranch.link.messages import Follow, Message, Ship
from anabranch.link.network import Connection
from anabranch.link.outlet import LiveOutlet
from anabranch.runtime.pipe import Pipe, Silence
from simulation.clock import Clock, Process
from simulation.rows import RowBatch

Handler = Callable[[Any], Any]
WINDOWS = (1, 4, 1000)
"""Batches on their way in one connection at most."""


class Host:
    """A process as others see it."""

    def __init__(
        self,
        process: Process,
        handlers: Mapping[Any, Handler],
        outlets: Mapping[str, LiveOutlet[Any]] | None = None,
    ) -> None:
        self.process = process
        self.handlers = handlers
        self.outlets = {} if outlets is None else outlets

    async def answer(self, message: Message) -> Any:
        answer = self.handlers[type(message)](message)
        return await answer if inspect.iscoroutine(answer) else answer

    def serve(self, request: Follow | Ship, out: Any) -> None:
        outlet = self.outlets.get(request.stream)
        if outlet is None:
            out.end(SiteError(f"no stream {request.stream} at {self.process.name}"))
        else:
            self.process.spawn(serve(outlet, request, out), f"serve-{request.stream}")


class Wires:
    """Between all processes."""

    def __init__(self, clock: Clock, rng: Random, delay: tuple[int, int]) -> None:
        self.clock = clock
        self.hosts: dict[str, Host] = {}
        self.rng = rng
        self._delay = delay
        self.far: dict[tuple[str, str], int] = {}
        """Two processes, in order → milliseconds that it takes longer between them."""
        self._cuts: dict[tuple[str, str], int] = {}
        self._connections: list[FarPipe] = []
        self._calls: dict[Process, list[Callable[[Any, Exception], None]]] = {}

    def delay(self, one: str, other: str) -> int:
        far = self.far.get((min(one, other), max(one, other)), 0)
        return self.rng.randint(*self._delay) + far

    def cut(self, one: str, other: str, until: int) -> None:
        """Nothing passes between the two."""
        self._cuts[min(one, other), max(one, other)] = until

    def heals(self, one: str, other: str) -> int:
        """When they see each other again; 0 if they do."""
        until = self._cuts.get((min(one, other), max(one, other)), 0)
        return until if until > self.clock.now else 0

    def died(self, process: Process) -> None:
        """Those connected to it find out; what it had sent may still arrive."""
        for connection in self._connections:
            if process in (connection.client, connection.server):
                connection.reset(process)
        self._connections = [one for one in self._connections if one.open]
        for reply in self._calls.pop(process, ()):
            reply(None, Refused(f"{process.name} is gone"))

    def called(self, process: Process, reply: Callable[[Any, Exception], None]) -> None:
        """Whoever waits for its answer finds out when it dies."""
        self._calls.setdefault(process, []).append(reply)

    def opened(self, connection: FarPipe) -> None:
        self._connections.append(connection)


class SimNetwork:
    """As one process sees it."""

    def __init__(self, wires: Wires, process: Process, sites: tuple[str, ...]) -> None:
        self._wires = wires
        self._process = process
        self._sites = sites

    def sites(self) -> list[str]:
        return list(self._sites)

    async def call(self, site: str, message: Message, seconds: float) -> Any:
        wires, me = self._wires, self._process
        host = wires.hosts[site]
        if host.process is me:
            return await host.answer(message)
        answered = me.signal()
        answers: list[tuple[Any, Exception | None]] = []

        def arrive(value: Any, error: Exception | None) -> None:
            if not answers and not wires.heals(me.name, site):
                answers.append((value, error))
                answered.notify()

        def reply(value: Any, error: Exception | None) -> None:
            if not answers and not wires.heals(me.name, site):
                wires.clock.after(wires.delay(me.name, site), arrive, value, error)

        async def handle() -> None:
            try:
                reply(await host.answer(message), None)
            except AnabranchError as error:
                reply(None, error)

        def begin() -> None:
            host.process.spawn(handle(), message.action)

        def ask() -> None:
            if wires.heals(me.name, site):
                return
            if host.process.alive:
                wires.called(host.process, reply)
                host.process.do(begin)
            else:
                reply(None, Refused(f"{site} refused"))

        if not wires.heals(me.name, site):
            wires.clock.after(wires.delay(me.name, site), ask)
        await answered.wait(seconds)
        if not answers:
            raise SiteError(f"{site} does not answer")
        value, error = answers[0]
        if error:
            raise error
        return value

    def connect(self, site: str, request: Follow | Ship) -> Connection:
        wires, me = self._wires, self._process
        host = wires.hosts[site]
        if host.process is me:
            near: Pipe[Any] = Pipe(me, 1 << 20)
            host.serve(request, near)
            return near
        far = FarPipe(wires, me, host.process)
        wires.opened(far)

        def arrive() -> None:
            if wires.heals(me.name, site):
                far.lost = True
            elif not host.process.alive:
                far.end(Refused(f"{site} refused"))
            else:
                host.process.do(host.serve, request, far)

        if wires.heals(me.name, site):
            far.lost = True
        else:
            wires.clock.after(wires.delay(me.name, site), arrive)
        return far


class FarPipe:
    """A connection between two processes; `None` among what it brings is its end."""

    def __init__(self, wires: Wires, client: Process, server: Process) -> None:
        self.client = client
        self.server = server
        self.open = True
        self.lost = False
        self.gone = False
        """The server knows that nobody reads any more."""
        self._wires = wires
        self._patient = wires.rng.random() < 0.5
        self._window = wires.rng.choice(WINDOWS)
        self._arrival = 0
        self._flying: deque[RowBatch | AnabranchError | None] = deque()
        self._inbox: deque[RowBatch | AnabranchError | None] = deque()
        self._arrived = client.signal()
        self._read = server.signal()

    @property
    def _heals(self) -> int:
        return self._wires.heals(self.client.name, self.server.name)

    def _delay(self) -> int:
        return self._wires.delay(self.client.name, self.server.name)

    # -- the server's end ------------------------------------------------------------------------

    async def send(self, batch: RowBatch) -> bool:
        while len(self._flying) + len(self._inbox) >= self._window and not self.gone:
            await self._read.wait()
        self._put(batch)
        return not self.gone

    def end(self, error: AnabranchError | None = None) -> None:
        self._put(error)

    def _put(self, item: RowBatch | AnabranchError | None) -> None:
        if not self.lost and self.open:
            self._flying.append(item)
            self._schedule()

    def _schedule(self) -> None:
        clock = self._wires.clock
        heals = self._heals
        if heals and not self._patient:
            self.lost = True
            return
        start = max(clock.now, heals)
        self._arrival = max(self._arrival, start + self._delay())
        clock.after(self._arrival - clock.now, self._land)

    def _land(self) -> None:
        if self.lost or not self.open or not self._flying:
            return
        if self._heals:
            self._schedule()
            return
        self._inbox.append(self._flying.popleft())
        self._arrived.notify()

    def _hang_up(self) -> None:
        self.gone = True
        self._read.notify()

    def reset(self, process: Process) -> None:
        if process is self.client:
            self.open = False
            if not self._heals:
                self._hang_up()
            return
        if self._delay() % 2:
            self._flying.clear()
        self._put(Refused(f"{process.name} is gone"))

    # -- the client's end ------------------------------------------------------------------------

    async def receive(self, seconds: float | None = None) -> RowBatch | None:
        if not self._inbox and self.open:
            await self._arrived.wait(seconds)
        if not self.open:
            return None
        if not self._inbox:
            raise Silence(f"{self.server.name} is silent")
        item = self._inbox.popleft()
        self._read.notify()
        if isinstance(item, AnabranchError):
            raise item
        return item

    def close(self) -> None:
        """The server hears of it if it can."""
        if self.open:
            self.open = False
            self._arrived.notify()
            if not self._heals:
                self._wires.clock.after(self._delay(), self._hang_up)
