"""Who may do what: every request carries the system's token, but those for its health. A
reader's token opens little; browsers are told what to hold back.

A reader causes nothing at a site but a bounded number of tails: what it asks is answered from the
catalog and from what the sites reported last. No source or sink is looked at for it, no plan is
made, no connection to anything outside of the system is opened.

A program sends `Authorization: Bearer …`. A person opens the address that `up` prints, which holds
an invitation, or types the token: that begins a session, which a cookie names. Requests by cookie
are those of our own pages alone.
"""

from __future__ import annotations

import asyncio
import hmac
import re
from collections.abc import Awaitable, Callable, MutableMapping
from html import escape
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from anabranch.face.sessions import MOST_BODY, MOST_LOGIN, Sessions

READERS_MAY = (
    ("GET", "/api/system"),
    ("GET", "/api/queries/{name}"),
    ("GET", "/api/queries/{name}/explain"),
    ("POST", "/api/explain"),  # of a query that is there, by its name
    ("GET", "/api/history"),
    ("GET", "/api/network"),
    ("GET", "/api/timeline"),
    ("GET", "/api/report"),
    ("GET", "/api/metrics"),
    ("GET", "/api/sites/{name}/metrics"),
    ("GET", "/api/targets"),
    ("GET", "/api/events"),
    ("GET", "/api/tail/{name}"),  # it sees the data; so many at once as `limits` says
    ("GET", "/api/docs"),
    ("GET", "/api/openapi.json"),
)


def _pattern(method: str, path: str) -> str:
    return f"{method} {path.replace('{name}', '[^/]+')}"


_MAY = re.compile("|".join(_pattern(method, path) for method, path in READERS_MAY))


def reader_may(method: str, path: str) -> bool:
    """Whether a reader may make this request. Who may GET may also HEAD."""
    return _MAY.fullmatch(f"{'GET' if method == 'HEAD' else method} {path}") is not None


Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing."""
_NOBODY = "base-uri 'none'; object-src 'none'; form-action 'self'; frame-ancestors 'none'"
_OF_PAGES = (
    # The dashboard makes its pages out of templates in the browser, and so needs its own scripts'
    # leave to do that. Nothing comes from elsewhere, and nothing goes there.
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self'"
    f" 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; {_NOBODY}"
)
_OF_TEXTS = f"default-src 'none'; style-src 'unsafe-inline'; {_NOBODY}"
_ALWAYS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


def with_headers(send: Send, *, page: bool) -> Send:
    """Adds to every answer what a browser may make of it: a `page` runs our scripts, a text runs
    none.
    """

    async def sent(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _ALWAYS.items():
                headers[name] = value
            headers["content-security-policy"] = _OF_PAGES if page else _OF_TEXTS
        await send(message)

    return sent


def of_another_origin(connection: HTTPConnection) -> bool:
    """Whether a page from elsewhere may have made the browser send this, with the cookie: from
    another site, or from another port of this host. If the browser does not say, a request that
    could change something counts as such.
    """
    headers, scope = connection.headers, connection.scope
    safe = scope["type"] == "http" and scope["method"] in SAFE
    opened = safe and headers.get("sec-fetch-mode") == "navigate"
    if not opened and headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        return True
    origin = headers.get("origin")
    if origin is None:
        return not safe
    return urlsplit(origin).netloc.lower() != headers.get("host", "").lower()


def login_page(path: str, why: str) -> str:
    """The page on which a person types the token. There is no script in it."""
    return f"""<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Anabranch</title>
<meta name="viewport" content="width=device-width"><style>
:root {{ color-scheme: light dark }}
body {{ font: 16px/1.6 system-ui, sans-serif; max-width: 30rem; margin: 4rem auto;
padding: 0 1rem }} input, button {{ font: inherit; padding: .4rem .6rem }}
input {{ width: 100%; box-sizing: border-box }}
</style></head><body><h1>Anabranch</h1><p>{escape(why)}</p>
<form method="post" action="{escape(path, quote=True)}">
<p><label>Token<br><input type="password" name="token" autocomplete="off" autofocus></label></p>
<p><button>Log in</button></p></form>
<p>On the machine where the system was started, <code>anabranch token</code> prints the token, and
<code>anabranch dashboard</code> an address that logs in by itself.</p></body></html>
"""


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
