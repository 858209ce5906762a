"""Who may do what: every request carries the system's token, but those for its health.

A program sends `Authorization: Bearer …`. A person opens the address that `up` prints, whose query
part holds the token: it becomes a cookie for this browser, and the address loses it. Who sends the
reader's token may look at the API, and change nothing.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qsl, urlencode

from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, RedirectResponse, Response

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN = frozenset({"/health", "/ready"})
_LOOKS = frozenset({"GET", "HEAD"})
_CHANGES_NOTHING = frozenset({"/api/explain"})
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
        if self._proved(connection):
            if scope["type"] == "http" and "token" in connection.query_params:
                await self._welcome(connection)(scope, receive, send)
            else:
                await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 4401})
        elif self._reads(connection):
            answer = self._app if _only_looks(scope) else _not_for_readers()
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


def _only_looks(scope: Scope) -> bool:
    """The API alone: the pages have buttons."""
    path = scope["path"]
    return path.startswith("/api/") and (scope["method"] in _LOOKS or path in _CHANGES_NOTHING)


def _not_for_readers() -> Response:
    remedy = "Send the system's own token: `anabranch token`."
    error = "this is the token of a reader, who changes nothing"
    return JSONResponse({"error": error, "remedy": remedy}, status_code=403)


def _refusal() -> Response:
    remedy = "Open the address that `anabranch up` prints, or send `Authorization: Bearer TOKEN`."
    return JSONResponse({"error": "wrong or missing token", "remedy": remedy}, status_code=401)
