"""Temporary folders. Their makers remove them; if a maker was killed, the next one does."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

import psutil

PREFIX = "anabranch-"
OWNER = "owner"
"""A file in each: the process that made it, by its number and the time it was started."""


def scratch_folder(kind: str = "") -> Path:
    """A new temporary folder; the caller removes it. Folders that killed processes have left are
    removed first.
    """
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        if _abandoned(folder):
            shutil.rmtree(folder, ignore_errors=True)
    fresh = Path(tempfile.mkdtemp(prefix=PREFIX + kind))
    (fresh / OWNER).write_text(f"{os.getpid()} {psutil.Process().create_time()}")
    return fresh


def _abandoned(folder: Path) -> bool:
    """Whether its maker is a process that no longer exists. A folder that does not name its maker
    stays.
    """
    with suppress(OSError, ValueError, psutil.AccessDenied):
        pid, started = (folder / OWNER).read_text().split()
        if folder.stat().st_uid != os.getuid():
            return False
        try:
            return bool(psutil.Process(int(pid)).create_time() != float(started))
        except psutil.NoSuchProcess:
            return True
    return False
