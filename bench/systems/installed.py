"""A system as its users have it: commands of `anabranch`, in a folder of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from anabranch.coordinator.requests import AskStatus
from anabranch.coordinator.service.state import find_coordinator
from anabranch.errors import AnabranchError, TaskError
from anabranch.scratch import scratch_folder
from bench.systems.processes import kill
from bench.systems.system import Status

COMMAND = (sys.executable, "-m", "anabranch")
UP_S, STOP_S, LOOK_S = 180.0, 60.0, 0.1


class Installed:
    """`cluster` is its cluster.toml. What `up` prints is in the file `log` of its folder."""

    def __init__(self, cluster: str, state_mb: int = 0) -> None:
        """With `state_mb` the state folder is a file system of that size, in memory, which takes
        root."""
        self.folder = scratch_folder()
        self._state = self.folder / ".anabranch"
        self._own_disk = bool(state_mb)
        if state_mb:
            self._state.mkdir(mode=0o700)
            size = f"size={state_mb}m,mode=700"
            _program("mount", "-t", "tmpfs", "-o", size, "anabranch", str(self._state))
        self.log = self.folder / "log"
        self.log.touch()
        (self.folder / "cluster.toml").write_text(cluster)
        self._up: subprocess.Popen[bytes] | None = None

    def up(self) -> None:
        """As a service manager starts it; `wait_until_up` waits."""
        with self.log.open("ab") as log:
            self._up = subprocess.Popen(
                [*COMMAND, "up", "--cluster", "cluster.toml", "--http", "off"],
                cwd=self.folder,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def wait_until_up(self) -> None:
        """Until the coordinator of this `up` answers that all its sites are there."""
        self.wait(lambda s: all(one.state in ("up", "stuck") for one in s.sites), "up", UP_S)

    def down(self) -> None:
        self._run("down")
        if self._up:
            self._up.wait(STOP_S)

    def kill(self) -> None:
        """SIGKILL to the coordinator, its sites and their JVMs."""
        kill(self.processes())
        if self._up:
            self._up.wait()

    def processes(self) -> list[psutil.Process]:
        """All that work in its folder: sites outlive the coordinator that has started them."""
        found = []
        for one in psutil.process_iter():
            with suppress(psutil.Error, FileNotFoundError):
                if self.folder in Path(one.cwd(), "x").parents:
                    found.append(one)
        return found

    def execute(self, text: str) -> str:
        """What `anabranch sql` says to it."""
        return self._run("sql", "-e", text)

    def _run(self, *arguments: str) -> str:
        done = subprocess.run(
            [*COMMAND, *arguments], cwd=self.folder, capture_output=True, text=True
        )
        if done.returncode:
            raise TaskError(f"anabranch {arguments[0]}: {done.stderr.strip()}")
        return done.stdout

    def status(self) -> Status | None:
        """None while there is no coordinator that answers."""
        with suppress(AnabranchError, OSError):
            return find_coordinator(self.folder / ".anabranch").send(AskStatus())
        return None

    def wait(self, true: Callable[[Status], Any], what: str, timeout_s: float = 60.0) -> Status:
        """Raises TaskError if it does not come true in time, or if `up` ends before."""
        deadline = time.monotonic() + timeout_s
        status: Status | None = None
        while time.monotonic() < deadline:
            if self._up and (code := self._up.poll()) is not None:
                raise TaskError(f"up has ended with {code}: {self.log.read_text()[-2000:]}")
            if (status := self.status()) and true(status):
                return status
            time.sleep(LOOK_S)
        states = status.states if status else self.log.read_text()[-2000:]
        raise TaskError(f"{what}: not within {timeout_s:g} s", remedy=str(states))

    @contextmanager
    def full(self) -> Iterator[None]:
        """Nothing more fits into the state folder meanwhile."""
        filler = self._state / "filler"
        with filler.open("wb", buffering=0) as file, suppress(OSError):
            for size in (1 << 20, 1 << 12, 1):
                with suppress(OSError):
                    while file.write(bytes(size)):
                        pass
        try:
            yield
        finally:
            filler.unlink()

    def close(self) -> None:
        self.kill()
        if self._own_disk:
            _program("umount", "--lazy", str(self._state))  # the killed may still go
        shutil.rmtree(self.folder, ignore_errors=True)


def _program(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


@contextmanager
def stopped(processes: list[psutil.Process]) -> Iterator[None]:
    """They stand still meanwhile."""
    for one in processes:
        os.kill(one.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for one in processes:
            with suppress(ProcessLookupError):
                os.kill(one.pid, signal.SIGCONT)
