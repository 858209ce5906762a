"""A stream of numbers, a place to collect it, and a network that can be broken."""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from anabranch.link.gate import Credentials, Gate, Handler
from anabranch.link.inlet import Budget, LiveInlet
from anabranch.link.message import Message
from anabranch.link.outlet import LiveOutlet
from anabranch.link.wire import ArrowBatches, wire_schema
from anabranch.runtime.loop import process_loop
from anabranch.runtime.pipe import Incoming, Pipe
from anabranch.stream.batch import Batch

SCHEMA = wire_schema(pa.schema([("n", pa.int64())]))
TOKEN = Credentials("secret")
BEAT_S = 0.05
LOOP = process_loop()


def numbers(first: int, count: int) -> pa.RecordBatch:
    """Tuples whose column and event time are their position."""
    column = pa.array(range(first, first + count), pa.int64())
    return pa.RecordBatch.from_arrays([column, column, column], schema=SCHEMA)


def values(batches: Iterable[Batch[pa.RecordBatch]]) -> list[int]:
    return [n for batch in batches for n in batch.data.column("n").to_pylist()]


def an_outlet(limit: int = 1 << 20) -> LiveOutlet:
    return LiveOutlet(LOOP, "S", ArrowBatches(SCHEMA), limit=limit, heartbeat_s=BEAT_S)


def an_inlet(limit: int = 1 << 20, budget: Budget | None = None) -> LiveInlet:
    return LiveInlet("S", limit=limit, budget=budget or Budget(LOOP, 2 * limit))


def drain(incoming: Incoming[Batch[pa.RecordBatch]]) -> Iterator[Batch[pa.RecordBatch]]:
    """What comes, as it is asked for."""
    try:
        while (batch := LOOP.run(incoming.receive(10))) is not None:
            yield batch
    finally:
        with LOOP:
            incoming.close()


def follow(
    outlet: LiveOutlet, consumer: str, after: int, epoch: int = 0, pipe: Pipe | None = None
) -> Iterator[Batch[pa.RecordBatch]]:
    pipe = pipe or Pipe(LOOP, limit=0)
    LOOP.spawn(outlet.follow(pipe, consumer, after, epoch))
    return drain(pipe)


def ship(
    outlet: LiveOutlet, consumer: str, after: int, epoch: int, batch: int
) -> Iterator[Batch[pa.RecordBatch]]:
    pipe: Pipe = Pipe(LOOP, limit=0)
    LOOP.spawn(outlet.ship(pipe, consumer, after, epoch, batch))
    return drain(pipe)


def offer(inlet: LiveInlet, batch: Batch[pa.RecordBatch]) -> None:
    """As a link does: waits for space."""

    async def offered() -> None:
        await inlet.space()
        await inlet.offer(batch)

    LOOP.run(offered())


@contextlib.contextmanager
def a_gate(
    *outlets: LiveOutlet,
    credentials: Credentials = TOKEN,
    actions: Mapping[type[Message[Any]], Handler] | None = None,
) -> Iterator[Gate]:
    found = {outlet.stream: outlet for outlet in outlets}
    gate = Gate("127.0.0.1:0", credentials, actions or {}, found.__getitem__)
    try:
        yield gate
    finally:
        for outlet in outlets:
            outlet.close()
        gate.shutdown()


def eventually(true: Callable[[], bool], within_s: float = 10.0) -> None:
    deadline = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.005)


class Taker:
    """Takes all that comes into an inlet, in its own thread."""

    def __init__(self, inlet: LiveInlet, took: Callable[[int], None] = lambda last: None) -> None:
        self.got: list[int] = []
        self._inlet = inlet
        self._took = took
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closed.wait(0.002):
            got = values(self._inlet.take(1000))
            self.got += got
            if got:
                self._took(got[-1])
            self._inlet.done()


class Connection:
    """One TCP connection through the proxy; `left` bytes go to the client before it is cut."""

    def __init__(self, client: socket.socket, server: socket.socket, left: float) -> None:
        self.stalled = threading.Event()
        self._ends = (client, server)
        self._left = left
        for source, sink in ((client, server), (server, client)):
            threading.Thread(target=self._forward, args=(source, sink), daemon=True).start()

    def cut(self) -> None:
        """As when a machine goes down: what is under way is lost, both ends get a reset."""
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                end.shutdown(socket.SHUT_RD)
                end.close()

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):  # the other direction was cut
            while data := source.recv(16_384):
                if self.stalled.is_set():
                    return  # and leave everything open
                if sink is self._ends[0]:
                    self._left -= len(data)
                    if self._left < 0:
                        break
                sink.sendall(data)
        self.cut()


class Proxy:
    """Stands between a peer and a gate. The first connections are cut after `cuts` bytes."""

    def __init__(self, target: str, cuts: Iterable[int] = ()) -> None:
        host, _, port = target.rpartition(":")
        self.connections: list[Connection] = []
        self.stall_new = False
        self._target = (host, int(port))
        self._cuts = itertools.chain(cuts, itertools.repeat(float("inf")))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def stall(self) -> None:
        """The connections there are forward nothing any more, and nobody is told."""
        for connection in self.connections:
            connection.stalled.set()

    def close(self) -> None:
        self._listener.close()
        for connection in self.connections:
            connection.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                connection = Connection(client, server, next(self._cuts))
                if self.stall_new:
                    connection.stalled.set()
                self.connections.append(connection)


@contextlib.contextmanager
def a_proxy(target: str, cuts: Iterable[int] = ()) -> Iterator[Proxy]:
    proxy = Proxy(target, cuts)
    try:
        yield proxy
    finally:
        proxy.close()
