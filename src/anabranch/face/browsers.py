"""The headers that restrict browsers, and the headers with which browsers say who has sent a
request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from html import escape
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection

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
