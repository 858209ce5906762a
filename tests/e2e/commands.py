"""The `anabranch` command as a user runs it: a process of its own, watched from outside."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

COMMAND = (sys.executable, "-m", "anabranch")


def environment(scratch: Path) -> dict[str, str]:
    """All temporary files go under `scratch`, so that one can see whether any is left."""
    scratch.mkdir(exist_ok=True)
    return os.environ | {"TMPDIR": str(scratch), "COLUMNS": "200"}


def anabranch(
    *arguments: str | Path, cwd: Path, timeout_s: float = 150.0
) -> subprocess.CompletedProcess[str]:
    """Run to the end and give back what it printed."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        cwd=cwd,
        env=environment(cwd / "tmp"),
        timeout=timeout_s,
        capture_output=True,
        text=True,
    )


def start(arguments: Sequence[str | Path], cwd: Path, log: str = "log") -> subprocess.Popen[bytes]:
    """Start as a shell does in the background, with SIGINT ignored, and leave running; what it
    prints goes to the file `log`."""
    with (cwd / log).open("ab") as file:
        return subprocess.Popen(
            ["bash", "-c", 'trap "" INT; exec "$@"', "bash", *COMMAND, *map(str, arguments)],
            cwd=cwd,
            env=environment(cwd / "tmp"),
            stdout=file,
            stderr=file,
        )


def wait_until(
    true: Callable[[], bool], what: str, timeout_s: float = 90.0, log: Path | None = None
) -> None:
    """`log` is shown if it does not become true."""
    deadline = time.monotonic() + timeout_s
    while not true():
        if time.monotonic() > deadline:
            printed = log.read_text()[-5000:] if log else ""
            raise AssertionError(f"{what}: not within {timeout_s} s\n{printed}")
        time.sleep(0.1)


def family(pid: int) -> list[psutil.Process]:
    """A process and all its descendants."""
    parent = psutil.Process(pid)
    return [parent, *parent.children(recursive=True)]


def all_gone(processes: Sequence[psutil.Process], timeout_s: float = 15.0) -> list[int]:
    """The process ids that are still there after a while; none is what one hopes for."""
    deadline = time.monotonic() + timeout_s
    while any(map(_runs, processes)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return [process.pid for process in processes if _runs(process)]


def _runs(process: psutil.Process) -> bool:
    """A zombie does not: it only waits for a parent, which may be an init that never looks."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
