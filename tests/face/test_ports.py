"""Every port that a system opens: without the token nothing but health answers."""

from __future__ import annotations

import json
import socket
import struct
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress

import psutil
import pyarrow.flight as flight
import pytest
from pyspark.sql import SparkSession

from anabranch.config.address import HostPort
from anabranch.config.cluster import ClusterConfig
from anabranch.config.rules import unguarded
from anabranch.face.access import OPEN
from anabranch.face.routes import make_app
from anabranch.face.server import FaceServer
from anabranch.link.gate import Credentials, Gate
from anabranch.link.messages import Ping
from anabranch.spark.jvm import jvm
from bench.face.viewer import simulated


@pytest.fixture(scope="module")
def face() -> Iterator[FaceServer]:
    with simulated(sites=3, operators=8) as server:
        yield server


def asked(url: str, method: str, token: str = "") -> int:
    request = urllib.request.Request(url, method=method, data=b"{}" if method == "POST" else None)
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def routes() -> list[tuple[str, str]]:
    """All of the API, its pages, and what NiceGUI serves."""
    paths = make_app(None).openapi()["paths"]
    found = [
        (path.replace("{name}", "q00d"), method.upper())
        for path, methods in paths.items()
        for method in methods
    ]
    assert len(found) >= 20
    pages = (
        "/",
        "/timeline",
        "/sql",
        "/query/q00d",
        "/api/docs",
        "/api/openapi.json",
        "/../etc",
        "/_nicegui/3.0.0/static/nicegui.css",
        "/_nicegui_ws/socket.io/?EIO=4",
    )
    return [*found, *((page, "GET") for page in pages)]


@pytest.mark.parametrize(("path", "method"), routes())
@pytest.mark.parametrize("token", ["", "wrong"])
def test_http_asks_for_the_token(face: FaceServer, path: str, method: str, token: str) -> None:
    status = asked(face.url.rstrip("/") + path, method, token)
    assert status == 401 if path not in OPEN else status == 200


def test_who_has_it_is_answered(face: FaceServer) -> None:
    token = face._system.coordinator.credentials.token
    assert asked(face.url + "api/system", "GET", token) == 200
    assert asked(face.url + "api/metrics", "GET", Credentials(token).reader_token) == 200


def test_gates_ask_for_the_token() -> None:
    gate = Gate("127.0.0.1:0", Credentials("right"), {Ping: lambda asked: {"pid": 1}})
    try:
        with flight.connect(f"grpc://{gate.address}") as client:
            for header in ([], [(b"authorization", b"Bearer wrong")]):
                options = flight.FlightCallOptions(headers=header, timeout=5)
                with pytest.raises(flight.FlightUnauthenticatedError):
                    list(client.do_action(flight.Action("ping", b"{}"), options))
                with pytest.raises(flight.FlightUnauthenticatedError):
                    client.do_get(flight.Ticket(json.dumps({}).encode()), options).read_all()
                with pytest.raises(flight.FlightUnauthenticatedError):
                    list(client.list_flights(b"", options))
    finally:
        gate.shutdown()


def test_beyond_this_machine_a_token_and_tls_are_asked_for() -> None:
    """As for gates; so `up --http 0.0.0.0:8600` alone is refused."""
    security = ClusterConfig().security
    everywhere = HostPort("0.0.0.0", 8600)
    assert [one.message for one in unguarded(everywhere, security, "--http")] == [
        "0.0.0.0:8600 can be reached from other machines, but there is no token"
    ]
    known = security.model_copy(update={"token_file": "token"})
    assert "there is no TLS" in next(unguarded(everywhere, known, "--http")).message
    trusted = known.model_copy(update={"plaintext": True})
    assert list(unguarded(everywhere, trusted, "--http")) == []
    assert list(unguarded(HostPort("127.0.0.1", 8600), security, "--http")) == []


def test_the_ports_of_spark_ask_who_it_is(spark: SparkSession) -> None:
    """Both of them, the driver's and the block manager's, are on loopback and take no message from
    who does not know the secret of this Spark: none of it is deserialised."""
    listening = [
        one.laddr
        for one in psutil.Process(jvm.pid).net_connections("tcp")
        if one.status == psutil.CONN_LISTEN
    ]
    assert {address.ip for address in listening} <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}
    answers = [answer for address in listening if (answer := rpc("127.0.0.1", address.port))]
    assert len(answers) >= 2
    for answer in answers:
        assert b"SaslMessage" in answer, answer


def rpc(host: str, port: int) -> bytes:
    """What a port of Spark says to a stranger's message; nothing if it is none of Spark's."""
    body = b"\xac\xed\x00\x05"  # how a serialised Java object begins
    message = struct.pack("!bqi", 3, 1, len(body)) + body
    with socket.create_connection((host, port), timeout=5) as connection:
        connection.settimeout(2)
        connection.sendall(struct.pack("!q", len(message) + 8) + message)
        with suppress(TimeoutError):
            return connection.recv(65536)
    return b""
