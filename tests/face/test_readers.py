"""A reader's token causes nothing at a site."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import create_server
from typing import Any

import pytest
from pyspark.sql import SparkSession
from starlette.testclient import TestClient

from anabranch.config.cluster import ClusterConfig
from anabranch.face.access import READERS_MAY, TokenAccess, reader_may
from anabranch.face.routes import make_app
from anabranch.face.sessions import MOST_BODY, MOST_TAILS_EACH
from anabranch.face.system import System as Face
from anabranch.link.gate import Gate
from bench.systems.system import System

READER = {"authorization": "Bearer looks"}
OPERATOR = {"authorization": "Bearer right"}
SCRIPT = """
CREATE STREAM s (value BIGINT) FROM rate(tps = 50) AT room1;
CREATE QUERY q AS SELECT value + 1 AS more FROM s WHERE value % 2 = 0 AT room1;
"""
FOLLOWING = {"attach", "detach", "acks", "status", "ping", "beat", "measured"}
"""What following a stream, and sites among themselves, say anyway."""


@pytest.fixture(scope="module")
def face(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Face]:
    folder: Path = tmp_path_factory.mktemp("readers")
    running = System(ClusterConfig.of_sites(["room1"]), spark, folder)
    made = Face(running.coordinator, folder)
    try:
        running.execute(SCRIPT)
        made.start()
        yield made
    finally:
        made.close()
        running.close()


@pytest.fixture
def client(face: Face) -> TestClient:
    access = TokenAccess(make_app(face), "right", secure=False, reader="looks")
    return TestClient(access, raise_server_exceptions=False)


@pytest.fixture(scope="module")
def trap() -> Iterator[tuple[int, list[Any]]]:
    """A port that nobody is to call, and who called."""
    callers: list[Any] = []
    with create_server(("127.0.0.1", 0)) as listener:

        def listen() -> None:
            while True:
                try:
                    connection, address = listener.accept()
                except OSError:
                    return
                callers.append(address)
                connection.close()

        threading.Thread(target=listen, daemon=True).start()
        yield listener.getsockname()[1], callers


NOTICED = {"open", "socket.connect", "ctypes.dlopen", "subprocess.Popen", "os.mkdir"}


class Effects:
    """What happens in this process, in which the site runs, while it is watched."""

    def __init__(self) -> None:
        self.watching = False
        self.seen: list[str] = []
        self.asked: list[tuple[str, str]] = []
        sys.addaudithook(self._hear)

    def _hear(self, event: str, given: tuple[Any, ...]) -> None:
        if not self.watching or event not in NOTICED:
            return
        reads = event == "open" and not set(str(given[1])) & set("wax+")
        if not reads and "/state/" not in str(given[0]):  # where the site keeps its points as ever
            self.seen.append(f"{event} {given[:2]}")

    @contextmanager
    def watched(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        answer, local = Gate._answer, Gate.answer

        def over_the_network(gate: Gate, name: str, body: bytes) -> Any:
            self.asked.append((gate.address, name))
            return answer(gate, name, body)

        def next_door(gate: Gate, asked: Any, seconds: float) -> Any:
            self.asked.append((gate.address, asked.action))
            return local(gate, asked, seconds)

        monkeypatch.setattr(Gate, "_answer", over_the_network)
        monkeypatch.setattr(Gate, "answer", next_door)
        self.watching = True
        try:
            yield
        finally:
            self.watching = False


EFFECTS = Effects()


def libraries() -> set[str]:
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {line.split()[-1] for line in lines if ".so" in line}


def hostile(port: int) -> list[str]:
    """Queries that would make a site call, load, write or compute."""
    return [
        f"CREATE QUERY x AS SELECT value FROM s INTO kafka(servers = '127.0.0.1:{port}',"
        " topic = 't', `plugin.library.paths` = '/tmp/none.so');",
        f"EXPLAIN CREATE QUERY x AS SELECT value FROM s INTO postgres("
        f"url = 'postgresql://any@127.0.0.1:{port}/x', table = 't');",
        "CREATE QUERY x AS SELECT value FROM s INTO jsonl(path = 'new/x.jsonl');",
        "SELECT length(repeat('x', 100000)) AS n FROM s;",
        "EXPLAIN SELECT value FROM s;",
    ]


def test_all_that_a_reader_may_ask_causes_nothing(
    face: Face,
    client: TestClient,
    trap: tuple[int, list[Any]],
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port, callers = trap
    loaded = libraries()
    paths = {"/api/events": "?count=1", "/api/tail/q": "?limit=2&timeout_s=5"}
    named = {"/api/sites/{name}/metrics": "room1"}
    with EFFECTS.watched(monkeypatch):
        for method, path in READERS_MAY:
            where = path.replace("{name}", named.get(path, "q"))
            body = {"text": "EXPLAIN q;"} if method == "POST" else None
            answer = client.request(method, where + paths.get(where, ""), json=body, headers=READER)
            assert answer.status_code == 200, (where, answer.text)
        for text in hostile(port):
            answer = client.post("/api/explain", json={"text": text}, headers=READER)
            assert answer.status_code == 400
            assert "not explained to a reader" in answer.json()["message"]
    py4j = spark.sparkContext._gateway.gateway_parameters.port  # a task's, of its JVM
    assert [one for one in EFFECTS.seen if f"('127.0.0.1', {py4j})" not in one] == []
    own = face.coordinator.address
    assert {name for address, name in EFFECTS.asked if address != own} <= FOLLOWING
    assert callers == []
    assert libraries() == loaded


def test_a_reader_is_told_how_a_query_runs(face: Face, client: TestClient) -> None:
    text = client.get("/api/queries/q/explain", headers=READER).json()["text"]
    assert "selection" in text
    face.coordinator.status()  # the site has reported by now
    asked = client.post("/api/explain", json={"text": "EXPLAIN q;"}, headers=READER).json()["text"]
    assert "room1" in asked


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/api/statements"),
        ("POST", "/api/stop"),
        ("POST", "/api/sites/room1/kill"),
        ("POST", "/api/queries/q/move"),
        ("POST", "/api/replan"),
        ("PUT", "/api/system"),
        ("POST", "/api/system"),
        ("GET", "/"),
        ("GET", "/api/system/"),
        ("GET", "/api/new"),
    ],
)
def test_what_is_not_in_the_list_is_refused(client: TestClient, method: str, path: str) -> None:
    assert not reader_may(method, path)
    assert client.request(method, path, headers=READER).status_code == 403


def test_tails_of_one_client_are_counted(face: Face, client: TestClient) -> None:
    with contexts(face, MOST_TAILS_EACH):
        answer = client.get("/api/tail/q", headers=READER)
        assert answer.status_code == 429
        assert "tails at once" in answer.json()["message"]
    answer = client.get("/api/tail/q?limit=1&timeout_s=5", headers=READER)
    assert answer.status_code == 200


@contextmanager
def contexts(face: Face, many: int) -> Iterator[None]:
    """So many tails of the test's own client."""
    if not many:
        yield
        return
    with face.tail("q", "testclient"), contexts(face, many - 1):
        yield


@pytest.mark.parametrize(
    ("headers", "status"),
    [({"content-length": str(MOST_BODY + 1)}, 413), ({"transfer-encoding": "chunked"}, 411)],
)
def test_a_body_without_bounds_is_not_read(
    client: TestClient, headers: dict[str, str], status: int
) -> None:
    answer = client.post("/api/explain", headers=OPERATOR | headers, content=b"")
    assert answer.status_code == status
