"""Calls another gate: actions, and its streams."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from anabranch.errors import (
    AnabranchError,
    ErrorReport,
    ProtocolError,
    Refused,
    SiteError,
)
from anabranch.link.door import LONG_BYTES, PROVE
from anabranch.link.gate import ANSWER, Credentials, read_secret
from anabranch.link.message import A, Bring, Fetch, Message, read, read_answer, written
from anabranch.link.messages import Follow, Ship
from anabranch.link.wire import read_batch
from anabranch.stream.batch import Batch

_CONNECTION = [
    # A broken connection is retried by us, at once: gRPC's own back-off grows to minutes.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
    # How long connecting may take.
    ("grpc.min_reconnect_backoff_ms", 2_000),
    # Clients of one address do not share a connection.
    ("grpc.use_local_subchannel_pool", 1),
    # What is read ahead of an inlet that is full stays small: the inlet is the queue.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 4 << 20),
]


CALL_S = 10.0
_CUT_OFF = ("connection refused", "connection reset by peer", "socket closed", "broken pipe")


class Peer:
    """One gate elsewhere. It connects on first use; several threads may use it."""

    def __init__(self, name: str, address: str, credentials: Credentials) -> None:
        self.name = name
        self.address = address
        self._headers = [(b"authorization", f"Bearer {credentials.token}".encode())]
        self._location = f"{credentials.scheme}://{address}"
        ca = credentials.tls_ca
        self._tls = {"tls_root_certs": read_secret(ca)} if ca else {}
        self._client: flight.FlightClient | None = self._connect()

    def _connect(self) -> flight.FlightClient:
        return flight.FlightClient(self._location, generic_options=_CONNECTION, **self._tls)

    def send(self, message: Message[A], timeout_s: float = CALL_S) -> A:
        """The answer. Raises the error it answered, or SiteError if it did not."""
        return read_answer(message, self._ask(message, timeout_s))

    def _ask(self, message: Message[Any], timeout_s: float) -> Any:
        body = written(message)
        with self._calling(timeout_s, len(body)) as (client, options):
            results = list(client.do_action(flight.Action(message.action, body), options))
        answer = json.loads(results[0].body.to_pybytes())
        if "error" in answer:
            raise read(ErrorReport, answer["error"]).error()
        return answer["ok"]

    def bring(self, message: Bring[A], table: pa.Table, timeout_s: float) -> A:
        """The answer to a message that comes with `table`. Raises as `send` does."""
        descriptor = flight.FlightDescriptor.for_command(_named(message))
        with self._calling(timeout_s, table.nbytes) as (client, options):
            writer, reader = client.do_put(descriptor, table.schema, options)
            with writer:
                writer.write_table(table)
                writer.done_writing()
                answer = reader.read()
        return read_answer(message, json.loads(answer.to_pybytes()))

    def fetch(self, message: Fetch[A], timeout_s: float) -> tuple[pa.Table, A]:
        """The table that answers a message, and what goes along with it. Raises as `send` does."""
        with self._calling(timeout_s, 0) as (client, options):
            table = client.do_get(flight.Ticket(_named(message)), options).read_all()
        answer = json.loads(table.schema.metadata[ANSWER])
        return table.replace_schema_metadata(None), read_answer(message, answer)

    @contextmanager
    def _calling(
        self, timeout_s: float, nbytes: int
    ) -> Iterator[tuple[flight.FlightClient, flight.FlightCallOptions]]:
        """A connection for a call that sends this many bytes. Raises what the gate raised, or
        SiteError if it is not there.
        """
        options = flight.FlightCallOptions(timeout=timeout_s, headers=self._headers)
        client = self._client
        if client is None:
            raise SiteError(f"the connection to {self.name} is closed")
        try:
            if nbytes > LONG_BYTES:
                list(client.do_action(flight.Action(PROVE, b""), options))
            yield client, options
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, flight.FlightTimedOutError) and self._client is client:
                self._client = self._connect()  # this connection may be dead without knowing it
            raise self._unreachable(error) from error

    def open(self, request: Follow | Ship) -> RemoteStream:
        """Begins to read a stream, on a connection of its own: after silence the next read does not
        use the same connection again. Raises SiteError if the gate is not there.
        """
        stream = request.stream
        ticket = flight.Ticket(_named(request))
        options = flight.FlightCallOptions(headers=self._headers)
        client = self._connect()
        try:
            reader = client.do_get(ticket, options)
            return RemoteStream(stream, client, reader, self._unreachable)
        except (pa.ArrowException, OSError) as error:
            raise self._unreachable(error) from error

    def close(self) -> None:
        """Closes the connection with the last call on it: closing it under another thread's call
        would bring the whole process down.
        """
        self._client = None

    def _unreachable(self, error: Exception) -> AnabranchError:
        details = getattr(error, "extra_info", b"")
        if details:
            return read(ErrorReport, json.loads(details)).error()
        if isinstance(error, flight.FlightUnauthenticatedError):
            return SiteError(
                f"{self.name} at {self.address} refused our token",
                remedy="Use the token of that cluster (--token-file).",
            )
        kind = Refused if _cut_off(error) else SiteError
        return kind(
            f"{self.name} at {self.address} is unreachable ({_reason(error)})",
            remedy="Check that it runs and that the address is right.",
        )


def _named(message: Message[Any]) -> bytes:
    return message.action.encode() + b" " + written(message)


def _cut_off(error: Exception) -> bool:
    """Whether the process is dead. gRPC tells a dead process from a silent one only in its own
    words about the socket, which stand after everything that names or messages of ours could bring
    into the text.
    """
    if not isinstance(error, flight.FlightUnavailableError):
        return False
    reason = _reason(error).lower()
    return any(reason.endswith(sign) for sign in _CUT_OFF)


def _reason(error: Exception) -> str:
    """The last few words of gRPC's account: `Connection refused`, `Deadline Exceeded`."""
    text = str(error).splitlines()[0].split(". gRPC client debug context")[0]
    text = text.rpartition("with message: ")[2].removesuffix(". Detail: Unavailable")
    if "last error: " in text:
        text = text.rpartition(": ")[2]
    return text.strip(" .()") or type(error).__name__


class RemoteStream:
    """An iterator over a stream's batches; `cancel` from another thread ends a blocked read."""

    def __init__(
        self,
        stream: str,
        client: flight.FlightClient,
        reader: flight.FlightStreamReader,
        explain: Callable[[Exception], Exception],
    ) -> None:
        self._stream = stream
        self._client = client
        self._reader = reader
        self._explain = explain

    def __iter__(self) -> Iterator[Batch[pa.RecordBatch]]:
        while True:
            try:
                chunk = self._reader.read_chunk()
            except StopIteration:
                return
            except (pa.ArrowException, OSError) as error:
                raise self._explain(error) from error
            if chunk.app_metadata is None:
                raise ProtocolError(f"stream {self._stream}: a batch came without its header")
            yield read_batch(self._stream, chunk.data, chunk.app_metadata)

    @property
    def schema(self) -> pa.Schema:
        return self._reader.schema

    def cancel(self) -> None:
        self._reader.cancel()


class Peers:
    """The gates of a cluster by site name. Addresses may change; then the next call connects
    again.
    """

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._addresses: dict[str, str] = {}
        self._peers: dict[str, Peer] = {}
        self._lock = threading.Lock()

    @property
    def token(self) -> str:
        return self._credentials.token

    def address(self, site: str) -> str | None:
        return self._addresses.get(site)

    def update(self, addresses: dict[str, str]) -> None:
        with self._lock:
            self._addresses.update(addresses)

    def names(self) -> list[str]:
        with self._lock:
            return list(self._addresses)

    def __getitem__(self, site: str) -> Peer:
        with self._lock:
            if site not in self._addresses:
                raise SiteError(f"site {site} is unknown here", remedy="Is it up and registered?")
            peer = self._peers.get(site)
            if peer is None or peer.address != self._addresses[site]:
                peer = self._peers[site] = Peer(site, self._addresses[site], self._credentials)
            return peer

    def close(self) -> None:
        with self._lock:
            for peer in self._peers.values():
                peer.close()
            self._peers.clear()
