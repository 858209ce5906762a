"""Without the token nothing but health answers."""

from __future__ import annotations

import pytest
from fastapi import FastAPI, WebSocket
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from anabranch.face.access import COOKIE, TokenAccess
from anabranch.link.gate import Credentials


@pytest.fixture
def client() -> TestClient:
    app = FastAPI()

    @app.get("/health")
    def health() -> str:
        return "ok"

    @app.get("/secret")
    def secret() -> str:
        return "told"

    @app.get("/api/system")
    def look() -> str:
        return "seen"

    @app.post("/api/explain")
    def explain() -> str:
        return "explained"

    @app.post("/api/statements")
    def change() -> str:
        return "changed"

    @app.websocket("/socket")
    async def socket(connection: WebSocket) -> None:
        await connection.accept()
        await connection.send_text("told")

    return TestClient(
        TokenAccess(app, "right", secure=False, reader="looks"), follow_redirects=False
    )


def test_health_is_open(client):
    assert client.get("/health").status_code == 200


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer wrong"}, {"cookie": "x=right"}])
def test_everything_else_is_not(client, headers):
    answer = client.get("/secret", headers=headers)
    assert answer.status_code == 401
    assert "token" in answer.json()["error"]
    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/socket", headers=headers):
        pass


def test_a_program_sends_the_token(client):
    assert client.get("/secret", headers={"authorization": "Bearer right"}).json() == "told"


def test_a_person_opens_an_address_once(client):
    answer = client.get("/secret?token=right&page=2")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/secret?page=2"
    assert "httponly" in answer.headers["set-cookie"].lower()
    assert client.get("/secret").json() == "told"  # by the cookie
    with client.websocket_connect("/socket", headers={"cookie": f"{COOKIE}=right"}) as socket:
        assert socket.receive_text() == "told"


def test_a_reader_looks_and_changes_nothing(client):
    reader = {"authorization": "Bearer looks"}
    assert client.get("/api/system", headers=reader).json() == "seen"
    assert client.post("/api/explain", headers=reader).json() == "explained"
    for method, path in (("post", "/api/statements"), ("put", "/api/system"), ("get", "/secret")):
        assert getattr(client, method)(path, headers=reader).status_code == 403
    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/socket", headers=reader):
        pass
    assert client.get("/api/system?token=looks").status_code == 401  # in the header alone


def test_the_readers_token_follows_from_the_token_and_not_the_other_way():
    credentials = Credentials("right")
    assert credentials.reader_token == Credentials("right").reader_token != "right"
    assert Credentials("other").reader_token != credentials.reader_token
