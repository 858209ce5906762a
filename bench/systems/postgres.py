"""A PostgreSQL of our own: a new cluster in a folder of its own, on a port of its own."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Any

import psutil
import psycopg

from anabranch.demo.database import programs, unprivileged_user
from anabranch.errors import SiteError
from bench.systems.server_process import Server, free_port, own_folder

# Durability costs a sync per commit, and this cluster is thrown away.
_SETTINGS = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


class Postgres:
    """Trusts everybody who reaches `host`; its superuser is `test`."""

    def __init__(
        self, host: str = "127.0.0.1", *, copy_of: Postgres | None = None, **settings: str
    ) -> None:
        """`settings` of the server, beside those or instead of those that make it quick. As a
        `copy_of` a server that runs it gets what that one commits, a little later."""
        self._user = unprivileged_user()
        self._bin = programs()
        self._host = host
        self._settings = _SETTINGS | settings
        self.port = free_port()
        self.url = f"postgresql://test@{host}:{self.port}/postgres"
        # A fast shutdown: connections are ended, not waited for.
        self._server = Server("PostgreSQL", own_folder("pg", self._user), signal.SIGINT)
        self._data = self._server.folder / "data"
        if copy_of:
            source = ("-d", copy_of.url, "-X", "stream", "-c", "fast")
            self._run("pg_basebackup", "-D", self._data, "-R", *source)
            return
        self._run("initdb", "-D", self._data, "-U", "test", "-A", "trust", "-E", "UTF8", "-N")
        if host != "127.0.0.1":
            with (self._data / "pg_hba.conf").open("a") as rules:
                rules.write(f"host all all {host}/24 trust\n")

    def start(self) -> None:
        settings = [word for item in self._settings.items() for word in ("-c", "=".join(item))]
        command: list[str | Path] = [
            self._bin / "postgres",
            "-D",
            self._data,
            "-h",
            self._host,
            "-p",
            str(self.port),
            "-k",
            "",
            *settings,
        ]
        self._server.start(command, self._answers, **self._as_user())

    def stop(self) -> None:
        self._server.stop()

    def kill(self) -> None:
        self._server.kill()

    def processes(self) -> list[psutil.Process]:
        """All of the server's."""
        return self._server.processes()

    def remove(self) -> None:
        self._server.remove()

    def execute(self, statement: Any, *values: Any) -> list[tuple[Any, ...]]:
        """The rows that `statement` gives, in a transaction of its own."""
        with psycopg.connect(self.url) as connection:
            cursor = connection.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else []

    def cut_off(self) -> None:
        """A copy gets nothing any more of the server that it copies."""
        self._set("ALTER SYSTEM SET primary_conninfo = ''")
        self._set("SELECT pg_reload_conf()")

    def promote(self) -> None:
        """A copy is a server of its own when this returns."""
        self._set("SELECT pg_promote()")

    def _set(self, statement: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement)

    def drop_connections(self) -> None:
        """End every other connection, as a failing network would."""
        self.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type ="
            " 'client backend' AND pid <> pg_backend_pid()"
        )

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def _run(self, program: str, *arguments: str | Path) -> None:
        done = subprocess.run(
            [self._bin / program, *arguments],
            capture_output=True,
            text=True,
            cwd=self._server.folder,
            **self._as_user(),
        )
        if done.returncode:
            self.remove()
            raise SiteError(f"{program} failed:\n{done.stdout}{done.stderr}")

    def _as_user(self) -> dict[str, Any]:
        if self._user is None:
            return {}
        return {"user": self._user, "extra_groups": []}
