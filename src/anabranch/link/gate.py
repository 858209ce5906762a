"""A gate: the one port of a site (or of the coordinator), an Arrow Flight server.

Streams are followed with DoGet, everything else is a message with an answer. A table that comes
with a message goes to the gate with DoPut, a table in an answer comes with DoGet. Every call must
carry the cluster's token. What a client sends before it is bounded: see `door`.
"""

from __future__ import annotations

import hmac
import inspect
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from anabranch.errors import AnabranchError, SetupError, SiteError
from anabranch.link.door import PROVE, Door, TokenCheck
from anabranch.link.message import A, Fetch, Message, read_message, written
from anabranch.link.messages import Follow, Ship
from anabranch.link.meter import Traffic
from anabranch.link.outlet import LiveOutlet
from anabranch.link.wire import PACKED, header, pack
from anabranch.runtime.base import Runtime
from anabranch.runtime.log import print_trace
from anabranch.runtime.loop import process_loop
from anabranch.runtime.pipe import Outgoing, Pipe, Silence
from anabranch.stream.batch import Batch

Handler = Callable[..., Any]
"""Takes a message; returns the answer, or a coroutine that does. For a Bring it also takes a reader
of the table; for a Fetch it returns the table and the answer."""
FindOutlet = Callable[[str], LiveOutlet[Any]]
Pack = Callable[[Batch[pa.RecordBatch]], pa.RecordBatch]

ANSWER = b"answer"
"""Where the answer to a Fetch is among the metadata of the table's schema."""
_LONGEST = 1_000
_PATIENCE_S = 3.0
_RETRY_S = 0.25
_LOOK_S = 1.0
_NOTHING: dict[str, LiveOutlet[Any]] = {}


@dataclass(frozen=True)
class Credentials:
    """The shared token, and the certificate files for TLS (without them: plain TCP)."""

    token: str
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_ca: str | None = None

    @property
    def reader_token(self) -> str:
        """A token that lets a program look over HTTP, and change nothing. It is computed from the
        token; the token cannot be computed from it.
        """
        return hmac.new(self.token.encode(), b"anabranch reader", "sha256").hexdigest()

    @property
    def scheme(self) -> str:
        return "grpc+tls" if self.tls_cert or self.tls_ca else "grpc"

    def server_certificates(self) -> list[tuple[bytes, bytes]]:
        if not (self.tls_cert and self.tls_key):
            return []
        return [(read_secret(self.tls_cert), read_secret(self.tls_key))]


def read_secret(path: str) -> bytes:
    """The content of a certificate or key file. Raises SetupError if there is none."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise SetupError(
            f"cannot read {path}: {error.strerror}", remedy="Check [security] in cluster.toml."
        ) from error


def check_address(listen: str, patience_s: float = 0.0) -> None:
    """Raises SetupError if nobody can listen there, now or within `patience_s`. Flight does not say
    why, and gRPC prints a lot on stderr: so this tries it without them first.
    """
    deadline = time.monotonic() + patience_s
    while why := _obstacle(listen):
        if time.monotonic() >= deadline:
            raise SetupError(
                f"cannot listen on {listen}: {why}",
                remedy="Choose another address with `listen` in cluster.toml, or port 0 for any"
                " port.",
            )
        time.sleep(_RETRY_S)


def _obstacle(listen: str) -> str:
    """Why nobody can listen there; empty if somebody can."""
    host, _, port = listen.rpartition(":")
    try:
        family, kind, *_, address = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_STREAM
        )[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen()
    except OSError as error:
        return (error.strerror or str(error)).lower()
    return ""


def _cannot_listen(listen: str, credentials: Credentials) -> SetupError:
    if credentials.scheme == "grpc":
        return SetupError(f"cannot listen on {listen}", remedy="Try again, or choose another port.")
    return SetupError(
        f"cannot listen on {listen} with this certificate",
        remedy="Check tls_cert and tls_key: PEM files that belong together.",
    )


class _ServedPipe(Pipe[pa.RecordBatch]):
    """A pipe that the thread of a Flight call reads."""

    def __init__(self, runtime: Runtime, context: flight.ServerCallContext) -> None:
        super().__init__(runtime, limit=0)
        self._cancelled = context.is_cancelled

    @property
    def gone(self) -> bool:
        return self._closed or self._cancelled()


def _drain(
    runtime: Runtime, pipe: _ServedPipe, packed: Pack
) -> Iterator[tuple[pa.RecordBatch, pa.Buffer]]:
    try:
        while not pipe.gone:
            try:
                batch = runtime.run(pipe.receive(_LOOK_S))
            except Silence:
                continue
            if batch is None:
                return
            yield packed(batch), header(batch)
    except AnabranchError as error:
        raise _as_flight(error) from error
    finally:
        with runtime:
            pipe.close()


def packer(traffic: Traffic, codec: str | None) -> Pack:
    """Puts a shipment into the form in which it goes over the wire, and counts it."""

    def packed(batch: Batch[pa.RecordBatch]) -> pa.RecordBatch:
        data = pack(batch.data, codec) if codec else batch.data
        traffic.shipped_as(batch, data.nbytes)
        return data

    return packed


def serve(
    outlet: LiveOutlet[Any], request: Follow | Ship, out: Outgoing[pa.RecordBatch]
) -> Coroutine[Any, Any, None]:
    """Sends what is asked for until it ends or nobody reads any more."""
    if isinstance(request, Ship):
        return outlet.ship(
            out, request.consumer, request.after, request.epoch, max(1, request.batch)
        )
    return outlet.follow(out, request.consumer, request.after, request.epoch, request.born)


LOCAL: dict[str, Gate] = {}
"""The gates of this process by address: what is next door is not called over the network."""


class Gate(flight.FlightServerBase):  # type: ignore[misc]  # Arrow says no types
    """Serves `actions` and the outlets that `find_outlet` knows (KeyError: not here).

    `listen` is host:port; port 0 takes a free one. Raises SetupError if the port is in use.
    """

    def __init__(
        self,
        listen: str,
        credentials: Credentials,
        actions: Mapping[type[Message[Any]], Handler],
        find_outlet: FindOutlet = _NOTHING.__getitem__,
        runtime: Runtime | None = None,
    ) -> None:
        self._actions = {kind.action: (kind, handler) for kind, handler in actions.items()}
        self.find_outlet = find_outlet
        self.token = credentials.token
        self._runtime = runtime or process_loop()
        self.host = listen.rpartition(":")[0]
        certificates = credentials.server_certificates()
        check_address(listen)
        try:
            super().__init__(
                f"{credentials.scheme}://{listen}",
                tls_certificates=certificates,
                middleware={"token": TokenCheck(credentials.token)},
            )
        except (pa.ArrowException, OSError) as error:
            raise _cannot_listen(listen, credentials) from error
        self._door = Door(self.port)
        LOCAL[self.address] = self

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def shutdown(self) -> None:
        """Stops listening, and lets running calls end, though not for ever: a follower that does
        not read holds its sender until its connection breaks.
        """
        for address in [address for address, gate in LOCAL.items() if gate is self]:
            LOCAL.pop(address, None)
        self._door.close()
        ending = threading.Thread(target=super().shutdown, name="gate-shutdown", daemon=True)
        ending.start()
        ending.join(_PATIENCE_S)

    def do_get(
        self, context: flight.ServerCallContext, ticket: flight.Ticket
    ) -> flight.FlightDataStream:
        self._door.proved(context.peer())
        action, _, body = ticket.ticket.partition(b" ")
        kind, handler = self._actions.get(action.decode(), (None, None))
        if kind and handler and issubclass(kind, Fetch):
            return _fetched(handler, read_message(kind, body))
        request = read_message(Ship, body) if action == b"ship" else read_message(Follow, body)
        try:
            outlet = self.find_outlet(request.stream)
        except KeyError:
            raise flight.FlightUnavailableError(f"no stream {request.stream} here") from None
        pipe = _ServedPipe(self._runtime, context)
        self._runtime.spawn(serve(outlet, request, pipe), f"serve-{request.stream}")
        codec = request.codec if isinstance(request, Ship) else None
        packed = packer(outlet.traffic, codec) if isinstance(request, Ship) else _plain
        schema = PACKED if codec else outlet.schema
        return flight.GeneratorStream(schema, _drain(self._runtime, pipe, packed))

    def do_put(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        self._door.proved(context.peer())
        action, _, body = descriptor.command.partition(b" ")
        with _carried(action.decode()):
            kind, handler = self._handler(action.decode())
            answer = handler(read_message(kind, body), reader.to_reader())
        writer.write(pa.py_buffer(written(answer)))

    def do_action(
        self, context: flight.ServerCallContext, action: flight.Action
    ) -> Iterator[flight.Result]:
        self._door.proved(context.peer())
        if action.type != PROVE:
            yield flight.Result(pa.py_buffer(self._answer(action.type, action.body.to_pybytes())))

    def _answer(self, name: str, body: bytes) -> bytes:
        """{"ok": result} or {"error": …}: errors are answers, so that they arrive whole."""
        try:
            kind, handler = self._handler(name)
            answer = handler(read_message(kind, body))
            if inspect.iscoroutine(answer):
                answer = self._runtime.run(answer)
            return written({"ok": answer})
        except AnabranchError as error:
            return written({"error": error.report()})
        except Exception as error:
            return written({"error": _unexpected(name, error).report()})

    def _handler(self, action: str) -> tuple[type[Message[Any]], Handler]:
        """The handler. Raises SiteError for a message that is not for this gate, for example from
        another version.
        """
        if action not in self._actions:
            raise SiteError(f"nobody answers {action} at {self.address}")
        return self._actions[action]

    async def answer(self, message: Message[A], seconds: float) -> A:
        """The same for a caller in this process. Raises what the other side raised, and SiteError
        after this time: the request may still be carried out.
        """
        _, handler = self._handler(message.action)
        try:
            answer: Any = handler(message)
            if inspect.iscoroutine(answer):
                answer = await within(self._runtime, answer, seconds, self.address)
            typed: A = answer
            return typed
        except AnabranchError:
            raise
        except Exception as error:
            raise _unexpected(message.action, error) from error


def _fetched(handler: Handler, request: Fetch[Any]) -> flight.RecordBatchStream:
    with _carried(request.action):
        table, answer = handler(request)
        return flight.RecordBatchStream(table.replace_schema_metadata({ANSWER: written(answer)}))


@contextmanager
def _carried(action: str) -> Iterator[None]:
    """Carries an error in the block whole to the other side, where no answer can carry it."""
    try:
        yield
    except AnabranchError as error:
        raise _as_flight(error) from error
    except Exception as error:
        raise _as_flight(_unexpected(action, error)) from error


def _as_flight(error: AnabranchError) -> flight.FlightServerError:
    """The error as Flight's. It travels among the headers, which have room for a few kilobytes
    only.
    """
    report = error.report()
    report = replace(report, message=report.message[:_LONGEST])
    return flight.FlightServerError(report.message, extra_info=written(report))


def _unexpected(action: str, error: Exception) -> AnabranchError:
    """The error for a fault of ours: it is printed whole here, and the caller gets a line and can
    still undo what was begun.
    """
    print_trace(error)
    return AnabranchError(f"action {action} failed: {type(error).__name__}: {error}")


async def within(
    runtime: Runtime, coroutine: Coroutine[Any, Any, Any], seconds: float, who: str
) -> Any:
    """Returns or raises what the coroutine does; SiteError if that takes longer."""
    done = runtime.signal()
    outcome: list[tuple[Any, Exception | None]] = []

    async def whole() -> None:
        try:
            outcome.append((await coroutine, None))
        except Exception as error:
            outcome.append((None, error))
        done.notify()

    runtime.spawn(whole())
    if not await done.wait(seconds) and not outcome:
        raise SiteError(f"{who} does not answer")
    value, error = outcome[0]
    if error:
        raise error
    return value


def _plain(batch: Batch[pa.RecordBatch]) -> pa.RecordBatch:
    return batch.data
