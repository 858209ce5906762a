"""Who may do what: every request carries the system's token, but those for its health.

A program sends `Authorization: Bearer …`. A person opens the address that `up` prints, whose query
part holds the token: it becomes a cookie for this browser, and the address loses it. What the
reader's token opens stands in `rights`.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qsl, urlencode

from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, RedirectResponse, Response

from anabranch.face.limits import MOST_BODY
from anabranch.face.rights import reader_may

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN = frozenset({"/health", "/ready"})
READS = "anabranch.reads"
"""In the scope of a request: it came with the reader's token."""
COOKIE = "anabranch_token"


class TokenAccess:
    """ASGI middleware in front of everything, websockets included."""

    def __init__(self, app: App, token: str, *, secure: bool, reader: str = "") -> None:
        """`reader` is the token of who may only look; none if it is empty."""
        self._app = app
        self._token = token
        self._reader = reader
        self._secure = secure

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or scope["path"] in OPEN:
            await self._app(scope, receive, send)
            return
        connection = HTTPConnection(scope)
        if scope["type"] == "http" and (refused := _unbounded(connection)):
            await refused(scope, receive, send)
        elif self._proved(connection):
            if scope["type"] == "http" and "token" in connection.query_params:
                await self._welcome(connection)(scope, receive, send)
            else:
                await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 4401})
        elif self._reads(connection):
            may = reader_may(scope["method"], scope["path"])
            answer = self._app if may else _not_for_readers()
            scope[READS] = True
            await answer(scope, receive, send)
        else:
            await _refusal()(scope, receive, send)

    def _proved(self, connection: HTTPConnection) -> bool:
        given = (
            _bearer(connection),
            connection.cookies.get(COOKIE, ""),
            connection.query_params.get("token", ""),
        )
        return any(hmac.compare_digest(one.encode(), self._token.encode()) for one in given)

    def _reads(self, connection: HTTPConnection) -> bool:
        given = _bearer(connection).encode()
        return bool(self._reader) and hmac.compare_digest(given, self._reader.encode())

    def _welcome(self, connection: HTTPConnection) -> Response:
        rest = [(k, v) for k, v in parse_qsl(connection.url.query) if k != "token"]
        where = connection.url.path + (f"?{urlencode(rest)}" if rest else "")
        answer = RedirectResponse(where, status_code=303)
        answer.set_cookie(
            COOKIE, self._token, httponly=True, samesite="strict", secure=self._secure
        )
        return answer


def _bearer(connection: HTTPConnection) -> str:
    return connection.headers.get("authorization", "").removeprefix("Bearer ")


def _unbounded(connection: HTTPConnection) -> Response | None:
    """Why a body is not even read: it is too long, or does not say how long it is. The server sees
    to it that none is longer than it says."""
    if "transfer-encoding" in connection.headers:
        return JSONResponse({"error": "how long the body is must be said first"}, status_code=411)
    length = connection.headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > MOST_BODY:
        error = f"a body has at most {MOST_BODY:,} bytes"
        return JSONResponse({"error": error}, status_code=413)
    return None


def _not_for_readers() -> Response:
    remedy = "Send the system's own token: `anabranch token`."
    error = "this is the token of a reader, who changes nothing"
    return JSONResponse({"error": error, "remedy": remedy}, status_code=403)


def _refusal() -> Response:
    remedy = "Open the address that `anabranch up` prints, or send `Authorization: Bearer TOKEN`."
    return JSONResponse({"error": "wrong or missing token", "remedy": remedy}, status_code=401)
