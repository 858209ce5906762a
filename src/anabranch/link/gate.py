"""A gate: the one port of a site (or of the coordinator), an Arrow Flight server.

Streams are followed with DoGet, everything else is an action with a JSON body and a JSON answer.
Every call must carry the cluster's token.
"""

from __future__ import annotations

import hmac
import json
import socket
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from anabranch.errors import AnabranchError, SetupError
from anabranch.link.codec import PACKED, pack
from anabranch.link.outlet import LiveOutlet
from anabranch.link.shipment import Traffic
from anabranch.link.wire import header
from anabranch.stream.batch import Batch

Handler = Callable[[dict[str, Any]], Any]
FindOutlet = Callable[[str], LiveOutlet]
Pack = Callable[[Batch[pa.RecordBatch]], pa.RecordBatch]

_PATIENCE_S = 3.0
_NOTHING: dict[str, LiveOutlet] = {}


@dataclass(frozen=True)
class Credentials:
    """The shared token, and the certificate files for TLS (none: plain TCP)."""

    token: str
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_ca: str | None = None

    @property
    def scheme(self) -> str:
        return "grpc+tls" if self.tls_cert or self.tls_ca else "grpc"

    def server_certificates(self) -> list[tuple[bytes, bytes]]:
        if not (self.tls_cert and self.tls_key):
            return []
        return [(read_secret(self.tls_cert), read_secret(self.tls_key))]


def read_secret(path: str) -> bytes:
    """A certificate or key. Raises SetupError if there is none."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise SetupError(
            f"cannot read {path}: {error.strerror}", remedy="Check [security] in cluster.toml."
        ) from error


def _cannot_listen(listen: str, credentials: Credentials) -> SetupError:
    """Flight does not say why: the address shows when it is tried without it."""
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
        why = (error.strerror or str(error)).lower()
        return SetupError(
            f"cannot listen on {listen}: {why}",
            remedy="Choose another address with `listen` in cluster.toml, or port 0 for any port.",
        )
    if credentials.scheme == "grpc":
        return SetupError(f"cannot listen on {listen}", remedy="Try again, or choose another port.")
    return SetupError(
        f"cannot listen on {listen} with this certificate",
        remedy="Check tls_cert and tls_key: PEM files that belong together.",
    )


class _TokenCheck(flight.ServerMiddlewareFactory):
    def __init__(self, token: str) -> None:
        super().__init__()
        self._expected = f"Bearer {token}"

    def start_call(self, info: flight.CallInfo, headers: Mapping[str, list[str]]) -> None:
        given = next(iter(headers.get("authorization", ())), "")
        if not hmac.compare_digest(given, self._expected):
            raise flight.FlightUnauthenticatedError("wrong or missing token")


def _messages(
    batches: Iterable[Batch[pa.RecordBatch]], pack: Pack = lambda batch: batch.data
) -> Iterator[tuple[pa.RecordBatch, pa.Buffer]]:
    try:
        for batch in batches:
            yield pack(batch), header(batch)
    except AnabranchError as error:
        details = json.dumps(error.to_dict()).encode()
        raise flight.FlightServerError(error.message, extra_info=details) from error


def _packer(traffic: Traffic, codec: str | None) -> Pack:
    def packed(batch: Batch[pa.RecordBatch]) -> pa.RecordBatch:
        data = pack(batch.data, codec) if codec else batch.data
        traffic.shipped_as(batch, data.nbytes)
        return data

    return packed


class Gate(flight.FlightServerBase):
    """Serves `actions` and the outlets that `find_outlet` knows (KeyError: not here).

    `listen` is host:port; port 0 takes a free one. Raises SetupError if the port is in use.
    """

    def __init__(
        self,
        listen: str,
        credentials: Credentials,
        actions: Mapping[str, Handler],
        find_outlet: FindOutlet = _NOTHING.__getitem__,
    ) -> None:
        self._actions = actions
        self._find_outlet = find_outlet
        self.host = listen.rpartition(":")[0]
        certificates = credentials.server_certificates()
        try:
            super().__init__(
                f"{credentials.scheme}://{listen}",
                tls_certificates=certificates,
                middleware={"token": _TokenCheck(credentials.token)},
            )
        except (pa.ArrowException, OSError) as error:
            raise _cannot_listen(listen, credentials) from error

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def shutdown(self) -> None:
        """Stop listening, and let the calls under way end; but not wait for ever, since a follower
        that does not read holds its sender until its connection breaks."""
        ending = threading.Thread(target=super().shutdown, name="gate-shutdown", daemon=True)
        ending.start()
        ending.join(_PATIENCE_S)

    def do_get(
        self, context: flight.ServerCallContext, ticket: flight.Ticket
    ) -> flight.FlightDataStream:
        request = json.loads(ticket.ticket)
        try:
            outlet = self._find_outlet(request["stream"])
        except KeyError:
            raise flight.FlightUnavailableError(f"no stream {request['stream']} here") from None
        if "ship" in request:
            return self._shipments(outlet, request, context)
        consumer, after, epoch = request["consumer"], request["after"], request["epoch"]
        followed = outlet.follow(consumer, after, context.is_cancelled, epoch)
        return flight.GeneratorStream(outlet.schema, _messages(followed))

    def _shipments(
        self, outlet: LiveOutlet, request: dict[str, Any], context: flight.ServerCallContext
    ) -> flight.FlightDataStream:
        """The stream as a standby gets it: in batches, perhaps compressed."""
        consumer, after, epoch = request["consumer"], request["after"], request["epoch"]
        size, codec = request["ship"]["batch"], request["ship"]["codec"]
        shipped = outlet.ship(consumer, after, epoch, size, context.is_cancelled)
        schema = PACKED if codec else outlet.schema
        return flight.GeneratorStream(schema, _messages(shipped, _packer(outlet.traffic, codec)))

    def do_action(
        self, context: flight.ServerCallContext, action: flight.Action
    ) -> Iterator[flight.Result]:
        answer = self._answer(action.type, action.body.to_pybytes())
        yield flight.Result(pa.py_buffer(json.dumps(answer).encode()))

    def _answer(self, name: str, body: bytes) -> dict[str, Any]:
        """{"ok": result} or {"error": …}: errors are answers, so that they arrive whole."""
        try:
            return {"ok": self._actions[name](json.loads(body or b"{}"))}
        except AnabranchError as error:
            return {"error": error.to_dict()}
        except Exception as error:
            traceback.print_exc()
            message = f"action {name} failed: {type(error).__name__}: {error}"
            return {"error": AnabranchError(message).to_dict()}
