"""The folder of a site: whose it is, which one it is, and that nobody else writes there."""

from __future__ import annotations

import os
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

from anabranch.disk.folder import Folder, Held
from anabranch.disk.real import RealFolder
from anabranch.disk.records import read_records, record
from anabranch.errors import StorageError

LOCK, IDENTITY = "lock", "identity"
PATIENCE_S = 5.0
"""A process that was just killed may take so long to go."""
_POLL_S = 0.1


def identity(folder: Folder) -> str:
    """What tells this folder from all others; it is decided when the folder is first used."""
    data = folder.read(IDENTITY)
    if data is not None:
        found = read_records(data, folder.place(IDENTITY))
        if found.payloads:
            return found.payloads[0].decode()
    made = secrets.token_hex(8)
    folder.replace(IDENTITY, record(made.encode()))
    return made


@dataclass(frozen=True)
class StateFolder:
    """Held by this process until it is closed."""

    files: RealFolder
    identity: str
    lock: Held

    @classmethod
    def hold(cls, path: Path, site: str, patience_s: float = PATIENCE_S) -> StateFolder:
        """Raises StorageError that says who holds it, if that does not end soon."""
        files = RealFolder(path)
        lock = _locked(files, f"site {site}, process {os.getpid()}", patience_s)
        try:
            return cls(files, identity(files), lock)
        except BaseException:
            lock.close()
            raise

    def close(self) -> None:
        """Another process may have it. Idempotent."""
        self.lock.close()


def _locked(files: RealFolder, holder: str, patience_s: float) -> Held:
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return files.lock(LOCK, holder)
        except StorageError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(_POLL_S)
