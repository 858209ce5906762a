"""A server as a child process that cannot outlive whoever started it."""

from __future__ import annotations

import ctypes
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from anabranch.errors import SiteError
from bench.systems.processes import family, kill

PATIENCE_S = 60
PORTS = (15_000, 32_000)
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


def free_port() -> int:
    """One that is free now and that no outgoing connection gets meanwhile: those have higher
    ones."""
    for port in random.sample(range(*PORTS), 100):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise SiteError("no port is free")


def own_folder(name: str, user: str | None = None) -> Path:
    """A new folder of its own, which `user` may enter."""
    folder = Path(tempfile.mkdtemp(prefix=f"anabranch-{name}-"))
    if user:
        shutil.chown(folder, user)
    return folder


class Server:
    """Runs `command` with its output in `folder/log`. `stop` ends it with `end`, then by force."""

    def __init__(self, name: str, folder: Path, end: signal.Signals = signal.SIGTERM) -> None:
        self.name = name
        self.folder = folder
        self._end = end
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, command: Sequence[str | Path], ready: Callable[[], bool], **more: Any) -> None:
        log = (self.folder / "log").open("ab")
        with log:
            self._process = subprocess.Popen(
                command,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=_end_with_parent,
                start_new_session=True,
                **more,
            )
        deadline = time.monotonic() + PATIENCE_S
        while not ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise SiteError(f"{self.name} did not start:\n{self.log()[-3000:]}")
            time.sleep(0.05)

    def stop(self) -> None:
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(self._end)
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._process = None

    def kill(self) -> None:
        """SIGKILL to all of it at once."""
        if self._process is not None:
            kill(family(self._process.pid))
            self._process.wait()
        self._process = None

    def processes(self) -> list[psutil.Process]:
        return family(self._process.pid) if self._process else []

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")


def _end_with_parent() -> None:
    """In the child: the kernel kills it when its parent dies, however that is; more exactly, when
    the thread ends that started it. So servers are started by the main thread."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
