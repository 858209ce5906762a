"""Who may do what. Every request but those for the system's health carries its token.

A program sends `Authorization: Bearer …`. A person opens the address that `up` prints, which holds
an invitation, or types the token: that begins a session, which a cookie names. Requests by cookie
are those of our own pages alone. `rights` lists what the reader's token opens.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode

from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from anabranch.face.browsers import Send, login_page, of_another_origin, with_headers
from anabranch.face.limits import MOST_BODY, MOST_LOGIN
from anabranch.face.rights import reader_may
from anabranch.face.sessions import Sessions

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN = frozenset({"/health", "/ready"})
LOGIN = "/login"
INVITATION = "invitation"
"""The part of an address that holds one."""
READS = "anabranch.reads"
"""In the scope of a request: it came with the reader's token."""
_PATIENCE_S = 1.0
"""After a wrong token."""
_WRONG = "This is not the token."
_USED = "This address has let somebody in already, or is more than an hour old."
_UNKNOWN = "Nobody is logged in with this browser."


class TokenAccess:
    """ASGI middleware in front of everything, websockets included."""

    def __init__(
        self,
        app: App,
        token: str,
        *,
        secure: bool,
        reader: str = "",
        sessions: Sessions | None = None,
        proved: Callable[[tuple[str, int]], None] = lambda client: None,
    ) -> None:
        """`reader` is the token for those who may only look; if it is empty there is no such token.
        `proved` is called with the client's address when somebody may come in.
        """
        self._app = app
        self._token = token
        self._reader = reader
        self._secure = secure
        self._sessions = sessions or Sessions()
        self._proved = proved

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        send = with_headers(send, page=not scope["path"].startswith("/api/"))
        if scope["path"] in OPEN:
            await self._app(scope, receive, send)
            return
        connection = HTTPConnection(scope)
        if scope["type"] == "http" and (refused := _unbounded(connection)):
            await refused(scope, receive, send)
            return
        await (await self._answer(connection, receive))(scope, receive, send)

    async def _answer(self, connection: HTTPConnection, receive: Receive) -> App:
        """The application that answers a request of this client."""
        scope = connection.scope
        if self._is(self._token, _bearer(connection)):
            return self._let_in(scope)
        if scope["type"] == "http":
            if self._reader and self._is(self._reader, _bearer(connection)):
                scope[READS] = True
                self._let_in(scope)
                may = reader_may(scope["method"], scope["path"])
                return self._app if may else _not_for_readers()
            if scope["path"] == LOGIN and scope["method"] == "POST":
                return await self._login(Request(scope, receive))
            if INVITATION in connection.query_params and scope["method"] == "GET":
                return self._accept(connection)
        if self._logged_in(connection):
            return _foreign(scope) if of_another_origin(connection) else self._let_in(scope)
        return _refusal(connection, _UNKNOWN)

    def _let_in(self, scope: Scope) -> App:
        if client := scope.get("client"):
            self._proved(tuple(client))
        return self._app

    def _is(self, token: str, given: str) -> bool:
        return hmac.compare_digest(given.encode(), token.encode())

    async def _login(self, request: Request) -> App:
        if int(request.headers.get("content-length", "0")) > MOST_LOGIN:
            return JSONResponse({"error": "a token is shorter"}, status_code=413)
        form = parse_qs((await request.body()).decode(errors="replace"))
        if self._is(self._token, form.get("token", [""])[0].strip()):
            return self._welcome(request, self._sessions.begin(), "/")
        await asyncio.sleep(_PATIENCE_S)
        return _refusal(request, _WRONG)

    def _accept(self, connection: HTTPConnection) -> App:
        rest = [(k, v) for k, v in parse_qsl(connection.url.query) if k != INVITATION]
        where = connection.url.path + (f"?{urlencode(rest)}" if rest else "")
        if session := self._sessions.accept(connection.query_params[INVITATION]):
            return self._welcome(connection, session, where)
        if self._logged_in(connection):
            return RedirectResponse(where, status_code=303)
        return _refusal(connection, _USED)

    def _logged_in(self, connection: HTTPConnection) -> bool:
        return self._sessions.knows(connection.cookies.get(self._cookie(connection.scope), ""))

    def _welcome(self, connection: HTTPConnection, session: str, where: str) -> Response:
        self._let_in(connection.scope)
        answer = RedirectResponse(where, status_code=303)
        name = self._cookie(connection.scope)
        answer.set_cookie(name, session, httponly=True, samesite="strict", secure=self._secure)
        return answer

    def _cookie(self, scope: Scope) -> str:
        """The cookie's name. Browsers send the cookies of a host to all its ports, so each port has
        a name of its own. With its prefix they accept it from this host alone, and over TLS.
        """
        port = (scope.get("server") or ("", 0))[1]
        return f"{'__Host-' if self._secure else ''}anabranch-{port}"


def _bearer(connection: HTTPConnection) -> str:
    return connection.headers.get("authorization", "").removeprefix("Bearer ")


def _unbounded(connection: HTTPConnection) -> Response | None:
    """The refusal of a body that is too long, or does not say how long it is; it is not even read.
    The server makes sure that no body is longer than it says.
    """
    if "transfer-encoding" in connection.headers:
        return JSONResponse({"error": "how long the body is must be said first"}, status_code=411)
    length = connection.headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > MOST_BODY:
        error = f"a body has at most {MOST_BODY:,} bytes"
        return JSONResponse({"error": error}, status_code=413)
    return None


def _foreign(scope: Scope) -> App:
    if scope["type"] == "websocket":
        return _closing(4403)
    remedy = "Programs send `Authorization: Bearer TOKEN` instead of the cookie."
    error = "another page has sent this, not one of ours"
    return JSONResponse({"error": error, "remedy": remedy}, status_code=403)


def _not_for_readers() -> App:
    remedy = "Send the system's own token: `anabranch token`."
    error = "this is the token of a reader, who changes nothing"
    return JSONResponse({"error": error, "remedy": remedy}, status_code=403)


def _refusal(connection: HTTPConnection, why: str) -> App:
    if connection.scope["type"] == "websocket":
        return _closing(4401)
    if "text/html" in connection.headers.get("accept", ""):
        return HTMLResponse(login_page(LOGIN, why), status_code=401)
    remedy = "Open the address that `anabranch dashboard` prints, or send `Authorization: Bearer"
    error = {"error": "wrong or missing token", "remedy": f"{remedy} TOKEN`."}
    return JSONResponse(error, status_code=401)


def _closing(code: int) -> App:
    async def close(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.close", "code": code})

    return close
