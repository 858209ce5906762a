"""Which process a number means: numbers are used again when processes have ended."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import psutil

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_GONE = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
LOOK_S = 0.02


def birth(pid: int) -> str:
    """A text that tells a process from all others that ever had or will have its number, on this
    machine or another; empty if there is none.
    """
    try:
        if psutil.Process(pid).status() in _GONE:
            return ""
        if _BOOT.exists():  # the wall clock may be set: ticks since the machine's start are not
            after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            return f"{_BOOT.read_text().strip()} {after_name[19]}"
        return str(psutil.Process(pid).create_time())
    except (psutil.Error, OSError, ValueError, IndexError):
        return ""


def end(pid: int, born: str, seconds: float) -> bool:
    """Kills this process, and the group that it leads: its JVM. Returns whether it has ended by
    then; true at once if the number means another by now.
    """
    deadline = time.monotonic() + seconds
    while born and birth(pid) == born:
        with suppress(ProcessLookupError):
            if os.getpgid(pid) == pid:
                os.killpg(pid, signal.SIGKILL)
            else:
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK_S)
    return True
