"""Calls and connections between processes that die, pause and lose sight of each other.

A dead process refuses, a paused or cut off one is silent. A call may be lost on either way. What a
connection carries comes in order; a cut breaks it, or holds it up until the cut is over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from anabranch.errors import AnabranchError, SiteError
from anabranch.sim.clock import Clock, Process, Signal, Steps
from anabranch.sim.rows import RowBatch

Handler = Callable[..., Any]


class Refused(SiteError):
    """Nobody listens there any more."""


class Host:
    """A process as others see it."""

    def __init__(self, process: Process, handlers: Mapping[str, Handler]) -> None:
        self.process = process
        self.handlers = handlers


class Network:
    def __init__(self, clock: Clock, rng: Random, delay: tuple[int, int]) -> None:
        self.clock = clock
        self.hosts: dict[str, Host] = {}
        self._rng = rng
        self._delay = delay
        self._cuts: dict[tuple[str, str], int] = {}
        self._connections: list[Connection] = []

    def delay(self) -> int:
        return self._rng.randint(*self._delay)

    # -- faults ----------------------------------------------------------------------------------

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

    # -- calls -----------------------------------------------------------------------------------

    def call(self, caller: Process, site: str, action: str, limit: int, **body: Any) -> Steps:
        """The answer. Raises what the other side raised, Refused, or SiteError if none came."""
        signal = Signal()
        answers: list[tuple[bool, Any]] = []

        def answer(ok: bool, value: Any) -> None:
            if not self.heals(caller.name, site):
                answers.append((ok, value))
                signal.notify()

        def reply(ok: bool, value: Any) -> None:
            if not self.heals(caller.name, site):
                self.clock.after(self.delay(), answer, ok, value)

        if not self.heals(caller.name, site):
            host = self.hosts[site]
            self.clock.after(self.delay(), self._arrive, caller, site, host, action, body, reply)
        yield signal, limit
        if not answers:
            raise SiteError(f"{site} does not answer")
        ok, value = answers[0]
        if not ok:
            raise value
        return value

    def _arrive(
        self,
        caller: Process,
        site: str,
        host: Host,
        action: str,
        body: dict[str, Any],
        reply: Callable[[bool, Any], None],
    ) -> None:
        if self.heals(caller.name, site):
            return
        if not host.process.alive:
            reply(False, Refused(f"{site} refused"))
            return

        def handle() -> None:
            try:
                answer = host.handlers[action](**body)
            except AnabranchError as error:
                reply(False, error)
            else:
                reply(True, answer)

        host.process.run(handle)

    # -- connections -----------------------------------------------------------------------------

    def connect(
        self, client: Process, site: str, serve: Callable[[Host, Connection], None]
    ) -> Connection:
        """`serve` is called at the site once the connection is there."""
        host = self.hosts[site]
        connection = Connection(self, client, host.process, self._rng.random() < 0.5)
        self._connections.append(connection)

        def arrive() -> None:
            if self.heals(client.name, site):
                connection.lost = True
            elif not host.process.alive:
                connection.send(Refused(f"{site} refused"))
            else:
                host.process.run(serve, host, connection)

        if client is host.process:
            serve(host, connection)
        elif self.heals(client.name, site):
            connection.lost = True
        else:
            self.clock.after(self.delay(), arrive)
        return connection


class Connection:
    """`None` among what it brings is its end."""

    def __init__(self, network: Network, client: Process, server: Process, patient: bool) -> None:
        self.client = client
        self.server = server
        self.open = True
        self.lost = False
        self.gone = False
        """The server knows that nobody reads any more."""
        self._network = network
        self._patient = patient
        self._arrival = 0
        self._flying: deque[RowBatch | AnabranchError | None] = deque()
        self._inbox: deque[RowBatch | AnabranchError | None] = deque()
        self._signal = Signal()

    @property
    def _heals(self) -> int:
        return self._network.heals(self.client.name, self.server.name)

    def send(self, item: RowBatch | AnabranchError | None) -> None:
        if self.lost or not self.open:
            return
        if self.client is self.server:
            self._inbox.append(item)
            self._signal.notify()
            return
        self._flying.append(item)
        self._schedule()

    def _schedule(self) -> None:
        clock = self._network.clock
        heals = self._heals
        if heals and not self._patient:
            self.lost = True
            return
        start = max(clock.now, heals)
        self._arrival = max(self._arrival, start + self._network.delay())
        clock.after(self._arrival - clock.now, self._land)

    def _land(self) -> None:
        if self.lost or not self.open or not self._flying:
            return
        if self._heals:
            self._schedule()
            return
        self._inbox.append(self._flying.popleft())
        self._signal.notify()

    def receive(self, limit: int) -> Steps:
        """The next batch, or None at the end. Raises what the other side raised, and SiteError
        after a silence of `limit`."""
        if not self._inbox:
            yield self._signal, limit
        if not self._inbox:
            raise SiteError(f"{self.server.name} is silent")
        item = self._inbox.popleft()
        if isinstance(item, AnabranchError):
            raise item
        return item

    def wake(self) -> None:
        self._signal.notify()

    def close(self) -> None:
        """By the client; the server hears of it if it can."""
        if self.open:
            self.open = False
            if self.client is self.server:
                self.gone = True
            elif not self._heals:
                self._network.clock.after(self._network.delay(), self._hang_up)

    def _hang_up(self) -> None:
        self.gone = True

    def reset(self, process: Process) -> None:
        if process is self.client:
            self.open = False
            if not self._heals:
                self.gone = True
            return
        if self._network.delay() % 2:
            self._flying.clear()
        self.send(Refused(f"{process.name} is gone"))
