"""How a process reaches the sites of its cluster: in the same process by a call, otherwise over
Flight.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import pyarrow as pa

from anabranch.errors import AnabranchError, ProtocolError, SiteError
from anabranch.link.gate import LOCAL, Gate, packer, serve
from anabranch.link.message import A, Message
from anabranch.link.messages import Follow, Ship
from anabranch.link.peer import Peers, RemoteStream
from anabranch.runtime.base import Runtime
from anabranch.runtime.pipe import Incoming, Outgoing, Pipe
from anabranch.stream.batch import Batch

NEAR_BYTES = 1 << 20
"""What is on its way between two sites of one process."""
LANES = 8
"""Calls under way to one site at most: one that hangs must not take all threads."""

Connection = Incoming[Batch[Any]]


class Network(Protocol):
    """The network as sites see it, real or simulated."""

    async def call(self, site: str, message: Message[A], seconds: float) -> A:
        """The answer. Raises the error it answered, Refused if nobody listens there, and SiteError
        if none came in time.
        """

    def connect(self, site: str, request: Follow | Ship) -> Connection:
        """A stream from there; errors show when it is read."""

    def sites(self) -> list[str]: ...


class FlightNetwork:
    def __init__(self, runtime: Runtime, name: str, peers: Peers) -> None:
        self._runtime = runtime
        self._name = name
        self._peers = peers
        self._lanes: dict[str, int] = {}
        self._freed = runtime.signal()

    def sites(self) -> list[str]:
        return self._peers.names()

    async def call(self, site: str, message: Message[A], seconds: float) -> A:
        if gate := self._here(site):
            return await gate.answer(message, seconds)
        end = self._runtime.now() + seconds
        while self._lanes.get(site, 0) >= LANES:
            left = end - self._runtime.now()
            if left <= 0:
                raise SiteError(f"{site} has {LANES} calls to answer, and does not answer")
            await self._freed.wait(left)
        self._lanes[site] = self._lanes.get(site, 0) + 1
        try:
            return await self._runtime.blocking(self._peers[site].send, message, seconds)
        finally:
            self._lanes[site] -= 1
            self._freed.notify()

    def connect(self, site: str, request: Follow | Ship) -> Connection:
        if (gate := self._here(site)) is None:
            return _FarPipe(self._runtime, lambda: self._peers[site].open(request))
        pipe: Pipe[pa.RecordBatch] = Pipe(self._runtime, NEAR_BYTES)
        try:
            outlet = gate.find_outlet(request.stream)
        except KeyError:
            pipe.end(SiteError(f"no stream {request.stream} at {site}"))
            return pipe
        out: Outgoing[pa.RecordBatch] = pipe
        if isinstance(request, Ship):
            codec = request.codec if site != self._name else None
            count = packer(outlet.traffic, codec) if site != self._name else None
            out = _Shipped(pipe, outlet.traffic.shipped_as, count)
        self._runtime.spawn(serve(outlet, request, out), f"serve-{request.stream}")
        return pipe

    def _here(self, site: str) -> Gate | None:
        """The gate of a site in this process, if it is one."""
        address = self._peers.address(site)
        gate = LOCAL.get(address) if address else None
        return gate if gate and self._peers.token == gate.token else None


class _Shipped:
    """Counts what is shipped inside the process, in the size that it would have on the wire."""

    def __init__(
        self,
        pipe: Pipe[pa.RecordBatch],
        shipped_as: Callable[[Batch[Any], int], None],
        packed: Callable[[Batch[Any]], pa.RecordBatch] | None,
    ) -> None:
        self._pipe = pipe
        self._shipped_as = shipped_as
        self._packed = packed

    @property
    def gone(self) -> bool:
        return self._pipe.gone

    async def send(self, batch: Batch[pa.RecordBatch]) -> bool:
        if self._packed:
            batch = replace(batch, data=self._packed(batch))
        else:
            self._shipped_as(batch, 0)
        return await self._pipe.send(batch)

    def end(self, error: AnabranchError | None = None) -> None:
        self._pipe.end(error)


class _FarPipe:
    """A stream from another process, read by a thread of its own, because Flight's reading
    blocks.
    """

    def __init__(self, runtime: Runtime, open_it: Callable[[], RemoteStream]) -> None:
        self._runtime = runtime
        self._open = open_it
        self._pipe: Pipe[pa.RecordBatch] = Pipe(runtime, limit=0)
        self._stream: RemoteStream | None = None
        threading.Thread(target=self._read, name="link", daemon=True).start()

    async def receive(self, seconds: float | None = None) -> Batch[pa.RecordBatch] | None:
        return await self._pipe.receive(seconds)

    def close(self) -> None:
        self._pipe.close()
        stream, self._stream = self._stream, None
        if stream:
            stream.cancel()

    def _read(self) -> None:
        error: AnabranchError | None = None
        try:
            stream = self._open()
            with self._runtime:
                self._stream = stream
                if self._pipe.gone:
                    self.close()
            for batch in stream:
                if not self._runtime.run(self._pipe.send(batch)):
                    break
        except AnabranchError as problem:
            error = problem
        except Exception as problem:
            error = ProtocolError(f"link failed: {type(problem).__name__}: {problem}")
        with self._runtime:
            self._pipe.end(error)
