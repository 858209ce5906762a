"""Calls and connections between processes that die, pause and lose sight of each other.

A dead process refuses; a paused or cut off one is silent, and so is a machine that has vanished. A
call may be lost on either way, and the way there may be cut while the way back is not.
"""

from __future__ import annotations

import inspect
import sqlite3
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from anabranch.errors import AnabranchError, Refused, SiteError
from anabranch.link.gate import serve
from anabranch.link.message import A, Message
from anabranch.link.messages import Follow, Ship
from anabranch.link.network import Connection
from anabranch.link.outlet import LiveOutlet
from anabranch.runtime.pipe import Pipe
from simulation.clock import Clock, Process
from simulation.far_pipe import FarPipe

Handler = Callable[[Any], Any]


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

    async def answer(self, message: Message[A]) -> A:
        answer: Any = self.handlers[type(message)](message)
        found: A = await answer if inspect.iscoroutine(answer) else answer
        return found

    async def answer_or_say(self, message: Message[A]) -> A:
        """As a gate does: what the machine did to us is told as an error of ours."""
        try:
            return await self.answer(message)
        except (OSError, sqlite3.Error) as error:
            raise AnabranchError(f"{message.action} failed: {error}") from error

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
        """Sender, receiver → until when nothing passes."""
        self._vanished: set[str] = set()
        """Machines that answer nothing, not even that nobody listens there."""
        self._connections: list[FarPipe] = []
        self._calls: dict[Process, list[Callable[[Any, Exception], None]]] = {}

    def delay(self, one: str, other: str) -> int:
        far = self.far.get((min(one, other), max(one, other)), 0)
        return self.rng.randint(*self._delay) + far

    def cut(self, one: str, other: str, until: int) -> None:
        """Nothing passes between the two."""
        self.cut_one_way(one, other, until)
        self.cut_one_way(other, one, until)

    def cut_one_way(self, sender: str, receiver: str, until: int) -> None:
        """Nothing that the one sends reaches the other, though it hears the other."""
        self._cuts[sender, receiver] = until

    def heals(self, sender: str, receiver: str) -> int:
        """When the receiver hears the sender again; 0 if it does."""
        until = self._cuts.get((sender, receiver), 0)
        return until if until > self.clock.now else 0

    def died(self, process: Process) -> None:
        """Those connected to it find out; what it had sent may still arrive."""
        for connection in self._connections:
            if process in (connection.client, connection.server):
                connection.reset(process)
        self._connections = [one for one in self._connections if one.open]
        for reply in self._calls.pop(process, ()):
            reply(None, Refused(f"{process.name} is gone"))

    def vanished(self, process: Process) -> None:
        """Nobody finds out until `appeared`: its machine is off the network."""
        self._vanished.add(process.name)
        self._calls.pop(process, None)

    def appeared(self, process: Process) -> None:
        """The machine of that process is back, and knows nothing of what was connected to it."""
        self._vanished.discard(process.name)
        self.died(process)

    def answers(self, host: Host) -> bool:
        """At least that nobody listens there."""
        return host.process.alive or host.process.name not in self._vanished

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

    async def call(self, site: str, message: Message[A], seconds: float) -> A:
        wires, me = self._wires, self._process
        host = wires.hosts[site]
        if host.process is me:
            return await host.answer_or_say(message)
        answered = me.signal()
        answers: list[tuple[Any, Exception | None]] = []

        def arrive(value: Any, error: Exception | None) -> None:
            if not answers and not wires.heals(site, me.name):
                answers.append((value, error))
                answered.notify()

        def reply(value: Any, error: Exception | None) -> None:
            if not answers and not wires.heals(site, me.name):
                wires.clock.after(wires.delay(me.name, site), arrive, value, error)

        async def handle() -> None:
            try:
                reply(await host.answer_or_say(message), None)
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
            elif wires.answers(host):
                reply(None, Refused(f"{site} refused"))

        if not wires.heals(me.name, site):
            wires.clock.after(wires.delay(me.name, site), ask)
        await answered.wait(seconds)
        if not answers:
            raise SiteError(f"{site} does not answer")
        value, error = answers[0]
        if error:
            raise error
        found: A = value
        return found

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
            if wires.heals(me.name, site) or not wires.answers(host):
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
