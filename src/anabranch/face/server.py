"""The HTTP server of a coordinator: API and dashboard on one port, in a thread of its own."""

from __future__ import annotations

import logging
import socket
import threading
import time

import uvicorn

from anabranch.config.address import HostPort
from anabranch.errors import SetupError
from anabranch.face.access import INVITATION, TokenAccess
from anabranch.face.pages import add_pages
from anabranch.face.routes import make_app
from anabranch.face.sessions import MOST_REQUESTS
from anabranch.face.system import System
from anabranch.link.door import Door
from anabranch.link.gate import Credentials

START_S = 20.0
USUAL = HostPort("127.0.0.1", 8600)


class FaceServer:
    """Serves until closed. If `listen` is None, it serves this machine alone, at the usual port or,
    if that is taken, at any free port.
    """

    def __init__(self, system: System, credentials: Credentials, listen: HostPort | None) -> None:
        self._system = system
        self._socket = _bound(listen)
        host, port = self._socket.getsockname()[:2]
        tls = bool(credentials.tls_cert and credentials.tls_key)
        shown = f"[{host}]" if ":" in host else host
        self.url = f"{'https' if tls else 'http'}://{shown}:{port}/"
        self._door = Door(port, most_bytes=None)
        app = make_app(system)
        add_pages(app, system)
        config = uvicorn.Config(
            TokenAccess(
                app,
                credentials.token,
                secure=tls,
                reader=credentials.reader_token,
                sessions=system.sessions,
                proved=self._door.proved,
            ),
            log_level="critical",
            access_log=False,
            lifespan="on",
            ssl_certfile=credentials.tls_cert if tls else None,
            ssl_keyfile=credentials.tls_key if tls else None,
            timeout_graceful_shutdown=1,
            limit_concurrency=MOST_REQUESTS,
            ws="websockets-sansio",
        )
        logging.getLogger("nicegui").setLevel(logging.ERROR)  # a viewer who leaves is no news
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="face", daemon=True)
        system.start()
        self._thread.start()
        self._wait()

    def invitation(self) -> str:
        """An address that lets in the first person who opens it."""
        return f"{self.url}?{INVITATION}={self._system.sessions.invite()}"

    def _run(self) -> None:
        self._server.run(sockets=[self._socket])

    def _wait(self) -> None:
        deadline = time.monotonic() + START_S
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                raise SetupError(f"the dashboard did not start at {self.url}")
            time.sleep(0.02)

    def close(self) -> None:
        self._door.close()
        self._server.should_exit = True
        self._thread.join(timeout=5)
        self._socket.close()
        self._system.close()


def _bound(listen: HostPort | None) -> socket.socket:
    if listen is not None:
        try:
            return _listener(listen)
        except OSError as error:
            raise SetupError(
                f"cannot listen on {listen}: {(error.strerror or str(error)).lower()}",
                remedy="Choose another address with --http, or --http off.",
            ) from None
    try:
        return _listener(USUAL)
    except OSError:
        return _listener(HostPort(USUAL.host, 0))


def _listener(at: HostPort) -> socket.socket:
    family = socket.AF_INET6 if ":" in at.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((at.host, at.port))
    except OSError:
        listener.close()
        raise
    return listener
