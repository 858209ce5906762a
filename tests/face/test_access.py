"""Without the token nothing but health answers, and pages of others cannot use who is logged in."""

from __future__ import annotations

import re

import pytest
from fastapi import FastAPI, WebSocket
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from anabranch.face.access import TokenAccess
from anabranch.face.api_page import api_page
from anabranch.face.routes import make_app
from anabranch.face.sessions import IDLE_S, INVITED_S, MOST, Sessions
from anabranch.link.gate import Credentials

OWN = {"origin": "http://testserver"}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sessions(clock: Clock) -> Sessions:
    return Sessions(clock)


@pytest.fixture
def access(sessions: Sessions) -> TokenAccess:
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

    @app.get("/")
    def page() -> str:
        return "shown"

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

    return TokenAccess(app, "right", secure=False, reader="looks", sessions=sessions)


@pytest.fixture
def client(access: TokenAccess) -> TestClient:
    return TestClient(access, follow_redirects=False)


@pytest.fixture
def logged_in(client: TestClient, sessions: Sessions) -> TestClient:
    assert client.get(f"/?invitation={sessions.invite()}").status_code == 303
    return client


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


def test_a_person_opens_an_address_once(client, sessions):
    invitation = sessions.invite()
    answer = client.get(f"/secret?invitation={invitation}&page=2")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/secret?page=2"
    assert client.get("/secret").json() == "told"  # by the cookie
    with client.websocket_connect("/socket", headers=OWN) as socket:
        assert socket.receive_text() == "told"
    assert client.get(f"/secret?invitation={invitation}").status_code == 303  # is in already
    client.cookies.clear()
    answer = client.get(f"/secret?invitation={invitation}", headers={"accept": "text/html"})
    assert answer.status_code == 401
    assert "has let somebody in already" in answer.text


def test_the_cookie_is_not_the_token_and_is_kept_from_scripts_and_other_sites(client, sessions):
    cookie = client.get(f"/?invitation={sessions.invite()}").headers["set-cookie"]
    assert "right" not in cookie
    assert cookie.startswith("anabranch-80=")
    assert {"httponly", "samesite=strict", "path=/"} <= set(cookie.lower().split("; "))


def test_over_tls_the_cookie_is_of_this_host_alone(access, sessions):
    access._secure = True
    client = TestClient(access, base_url="https://testserver", follow_redirects=False)
    cookie = client.get(f"/?invitation={sessions.invite()}").headers["set-cookie"]
    assert cookie.startswith("__Host-anabranch-443=")
    assert "secure" in cookie.lower()
    assert "domain" not in cookie.lower()
    assert client.get("/secret").json() == "told"


@pytest.mark.parametrize("way", ["?token=right", "?invitation=right", "?invitation="])
def test_the_token_opens_nothing_in_an_address(client, way):
    assert client.get(f"/secret{way}").status_code == 401
    assert client.get("/secret", headers={"cookie": "anabranch-80=right"}).status_code == 401


def test_a_person_types_the_token(client, monkeypatch):
    monkeypatch.setattr("anabranch.face.access._PATIENCE_S", 0.0)
    page = client.get("/secret", headers={"accept": "text/html"})
    assert page.status_code == 401
    assert 'action="/login"' in page.text
    form = {"content-type": "application/x-www-form-urlencoded", "accept": "text/html"}
    for wrong in ("token=wrong", "token=", "token=looks", "", "other=right"):
        answer = client.post("/login", content=wrong, headers=form)
        assert answer.status_code == 401, wrong
        assert "not the token" in answer.text
    assert client.post("/login", content="token=" + "x" * 5000, headers=form).status_code == 413
    assert client.post("/login", content="token=right", headers=form).status_code == 303
    assert client.get("/secret").json() == "told"


def test_sessions_and_invitations_end(clock, sessions):
    old, kept = sessions.invite(), sessions.begin()
    clock.now = INVITED_S + 1
    assert sessions.accept(old) is None
    for _ in range(3):  # used, it goes on
        clock.now += IDLE_S * 0.9
        assert sessions.knows(kept)
    clock.now += IDLE_S + 1
    assert not sessions.knows(kept)
    first = sessions.begin()
    for _ in range(MOST):
        sessions.begin()
    assert not sessions.knows(first)


OTHERS = [
    {"origin": "http://testserver:8080"},
    {"origin": "http://evil.example"},
    {"origin": "null"},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"},
    {"sec-fetch-site": "same-site", "sec-fetch-mode": "navigate", "origin": "http://x"},
]


@pytest.mark.parametrize("headers", [{}, *OTHERS])
def test_pages_of_others_change_nothing_by_the_cookie(logged_in, headers):
    answer = logged_in.post("/api/statements", headers=headers)
    assert answer.status_code == 403
    assert "another page" in answer.json()["error"]
    with (
        pytest.raises(WebSocketDisconnect) as refused,
        logged_in.websocket_connect("/socket", headers=headers),
    ):
        pass
    assert refused.value.code == 4403


@pytest.mark.parametrize("headers", OTHERS)
def test_nor_do_they_read(logged_in, headers):
    assert logged_in.get("/api/system", headers=headers).status_code == 403


def test_our_own_pages_do_both(logged_in):
    for headers in (OWN, OWN | {"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"}):
        assert logged_in.post("/api/statements", headers=headers).json() == "changed"
    assert logged_in.get("/api/system").json() == "seen"
    linked = {"sec-fetch-site": "same-site", "sec-fetch-mode": "navigate"}
    assert logged_in.get("/", headers=linked).json() == "shown"


def test_a_program_needs_no_origin(client):
    bearer = {"authorization": "Bearer right"}
    assert client.post("/api/statements", headers=bearer).json() == "changed"


@pytest.mark.parametrize("path", ["/health", "/", "/api/system", "/nothing"])
def test_browsers_are_told_what_to_hold_back(client, path):
    for headers in ({}, {"authorization": "Bearer right"}):
        told = client.get(path, headers=headers).headers
        policy = told["content-security-policy"]
        assert "frame-ancestors 'none'" in policy
        assert "base-uri 'none'" in policy
        assert not re.search(r"https?:|\*", policy)  # nothing from elsewhere
        assert ("script-src" in policy) == (not path.startswith("/api/"))
        assert told["x-frame-options"] == "DENY"
        assert told["x-content-type-options"] == "nosniff"


def test_the_apis_page_is_whole():
    app = make_app(None)
    page = api_page(app.openapi())
    assert not re.search(r"(src|href|@import|url)\b", page)
    assert "<script" not in page
    for path, methods in app.openapi()["paths"].items():
        for method in methods:
            assert f"<h3>{method.upper()} {path}</h3>" in page
    bearer = {"authorization": "Bearer right"}
    client = TestClient(TokenAccess(app, "right", secure=False))
    assert client.get("/api/docs", headers=bearer).text == page


def test_a_reader_looks_and_changes_nothing(client):
    reader = {"authorization": "Bearer looks"}
    assert client.get("/api/system", headers=reader).json() == "seen"
    assert client.post("/api/explain", headers=reader).json() == "explained"
    for method, path in (("post", "/api/statements"), ("put", "/api/system"), ("get", "/secret")):
        assert getattr(client, method)(path, headers=reader).status_code == 403
    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/socket", headers=reader):
        pass
    assert client.get("/api/system?token=looks").status_code == 401  # in the header alone
    for cookie in ("looks", "right"):
        assert (
            client.get("/secret", headers={"cookie": f"anabranch-80={cookie}"}).status_code == 401
        )


def test_the_readers_token_follows_from_the_token_and_not_the_other_way():
    credentials = Credentials("right")
    assert credentials.reader_token == Credentials("right").reader_token != "right"
    assert Credentials("other").reader_token != credentials.reader_token
