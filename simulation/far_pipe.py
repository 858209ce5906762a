"""A connection between two processes of a simulation, each direction of which fails by itself.

What it carries comes in order. A cut breaks it, or holds it up until the cut is over; a machine
that vanished leaves it silent, a process that died ends it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from anabranch.errors import AnabranchError, Refused
from anabranch.runtime.pipe import Silence
from simulation.clock import Process
from simulation.rows import RowBatch

if TYPE_CHECKING:
    from simulation.network import Wires

WINDOWS = (1, 4, 1000)
"""Batches on their way in one connection at most."""


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
        """When what the server sends arrives again; 0 if it does."""
        return self._wires.heals(self.server.name, self.client.name)

    def _delay(self) -> int:
        return self._wires.delay(self.client.name, self.server.name)

    def _heard(self) -> bool:
        """The server hears what the client says."""
        return not self._wires.heals(self.client.name, self.server.name)

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
            if self._heard():
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
            if self._heard():
                self._wires.clock.after(self._delay(), self._hang_up)
