"""A site's HTTP port: `/health` and `/ready` for anybody, `/metrics` for clients with the token."""

from __future__ import annotations

import hmac
import json
import socket
import ssl
import threading
from collections.abc import Callable, Collection
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from anabranch.config.address import HostPort
from anabranch.errors import SetupError
from anabranch.link.door import Door
from anabranch.link.gate import Credentials
from anabranch.link.reports import SiteReport
from anabranch.site.http.metrics import CONTENT_TYPE, site_exposition

_PATIENCE_S = 10.0
"""A caller who is slower than that is no longer listened to."""


class SiteHttp:
    """Serves until closed. `report` returns what the site does, `ready` whether it does it well."""

    def __init__(
        self,
        listen: HostPort,
        credentials: Credentials,
        report: Callable[[], SiteReport],
        ready: Callable[[], bool],
    ) -> None:
        expected = tuple(
            f"Bearer {one}".encode() for one in (credentials.token, credentials.reader_token)
        )

        class Handler(_Handler):
            answers = staticmethod(_answers(expected, report, ready))

        try:
            self._server = _Server(listen, Handler)
        except OSError as error:
            raise SetupError(
                f"cannot listen on {listen}: {(error.strerror or str(error)).lower()}",
                remedy="Choose another address with `http` in cluster.toml.",
            ) from None
        tls = bool(credentials.tls_cert and credentials.tls_key)
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(str(credentials.tls_cert), credentials.tls_key)
            # The handshake is done by the caller's own thread: one who is slow holds up nobody.
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        host = f"[{listen.host}]" if ":" in listen.host else listen.host
        self.url = f"{'https' if tls else 'http'}://{host}:{self._server.server_port}/"
        self._door = Handler.door = Door(self._server.server_port, most_bytes=None)
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="site-http", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._door.close()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, listen: HostPort, handler: type[BaseHTTPRequestHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
        super().__init__((listen.host, listen.port), handler)


Answer = tuple[int, str, str]
Answers = Callable[[str, str], Answer]


def _answers(
    expected: Collection[bytes], report: Callable[[], SiteReport], ready: Callable[[], bool]
) -> Answers:
    def answer(path: str, authorization: str) -> Answer:
        """Status, content type and text for a path, given the client's authorization."""
        if path == "/health":
            return _json(HTTPStatus.OK, {"status": "ok"})
        if path == "/ready":
            well = ready()
            status = HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE
            return _json(status, {"ready": well})
        if not any(hmac.compare_digest(authorization.encode(), one) for one in expected):
            return _json(HTTPStatus.UNAUTHORIZED, {"error": "wrong or missing token"})
        if path == "/metrics":
            return HTTPStatus.OK, CONTENT_TYPE, site_exposition(report())
        return _json(HTTPStatus.NOT_FOUND, {"error": "there are /health, /ready and /metrics"})

    return answer


def _json(status: int, body: dict[str, object]) -> Answer:
    return status, "application/json", json.dumps(body)


class _Handler(BaseHTTPRequestHandler):
    answers: Answers
    door: Door
    timeout = _PATIENCE_S
    server_version, sys_version = "anabranch", ""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        status, kind, text = type(self).answers(path, self.headers.get("Authorization", ""))
        if status != HTTPStatus.UNAUTHORIZED:
            type(self).door.proved(self.client_address)
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing: a scrape is no news."""
