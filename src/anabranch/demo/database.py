"""A PostgreSQL server for as long as a scene takes: with programs of this machine, and data of its
own.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import psycopg

from anabranch.errors import SetupError

_ROOT = Path("/usr/lib/postgresql")
_START_S = 30.0
# Durability costs a sync per commit, and this cluster is thrown away.
_SETTINGS = ("fsync=off", "synchronous_commit=off", "full_page_writes=off")


class DemoDatabase:
    """Trusts everybody on 127.0.0.1, where it listens. Raises SetupError if PostgreSQL is not
    installed.
    """

    def __init__(self) -> None:
        self._programs = programs()
        self._user = unprivileged_user()
        self._folder = Path(tempfile.mkdtemp(prefix="anabranch-pg-"))
        if self._user:
            shutil.chown(self._folder, self._user)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self.url = f"postgresql://demo@127.0.0.1:{self._port}/postgres"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> DemoDatabase:
        data = self._folder / "data"
        try:
            self._run("initdb", "-D", data, "-U", "demo", "-A", "trust", "-E", "UTF8", "-N")
            settings = [word for one in _SETTINGS for word in ("-c", one)]
            self._process = self._popen(
                "postgres",
                "-D",
                data,
                "-h",
                "127.0.0.1",
                "-p",
                str(self._port),
                "-k",
                "",
                *settings,
            )
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        if self._process:
            self._process.send_signal(signal.SIGINT)  # a fast shutdown
            self._process.wait(timeout=_START_S)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self, program: str, *arguments: str | Path) -> None:
        if self._popen(program, *arguments).wait(timeout=_START_S):
            raise SetupError(f"{program} failed: {self._log()}")

    def _popen(self, program: str, *arguments: str | Path) -> subprocess.Popen[bytes]:
        more: dict[str, Any] = {"user": self._user, "extra_groups": []} if self._user else {}
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen(
                [self._programs / program, *arguments],
                cwd=self._folder,
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                **more,
            )

    def _wait(self) -> None:
        deadline = time.monotonic() + _START_S
        while True:
            try:
                psycopg.connect(self.url, connect_timeout=2).close()
                return
            except psycopg.OperationalError:
                if time.monotonic() > deadline or (self._process and self._process.poll()):
                    raise SetupError(f"PostgreSQL did not start: {self._log()}") from None
                time.sleep(0.05)

    def _log(self) -> str:
        lines = (self._folder / "log").read_text(errors="replace").splitlines()
        return lines[-1] if lines else "it said nothing"


def programs() -> Path:
    """The folder of PostgreSQL's programs; Debian keeps them off the PATH. Raises SetupError if
    there are none."""
    files = sorted(_ROOT.glob("*/bin/initdb"), key=lambda file: int(file.parts[-3]))
    on_path = shutil.which("initdb")
    if files:
        return files[-1].parent
    if on_path:
        return Path(on_path).resolve().parent
    raise SetupError(
        "this needs a PostgreSQL server, and none is installed here",
        remedy="Run `make servers`, or apt-get install postgresql.",
    )


def unprivileged_user() -> str | None:
    """Whom a server that refuses root runs as; None if we are not root."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"
