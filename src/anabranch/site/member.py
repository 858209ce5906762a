"""What a site is a member of: a catalog, which of its own lives this is, and the folder where
nobody else writes.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anabranch.disk.folder import Folder, HeldLock
from anabranch.disk.real import RealFolder
from anabranch.disk.records import read_records, record
from anabranch.errors import SiteError, StorageError
from anabranch.link.message import Order, Origin
from anabranch.process import birth


class Member:
    """`runs` says whether anything is deployed here. Only then does the catalog matter."""

    def __init__(self, name: str, runs: Callable[[], bool]) -> None:
        self.life = 0
        """The number of this process, if the coordinator has given it one."""
        self._name = name
        self._runs = runs
        self.origin = Origin()
        """The catalog that it belongs to."""
        self.started = birth(os.getpid())
        """When the process was."""

    def belongs_to(self, origin: Origin) -> None:
        """Takes note of the catalog that we belong to: the one that has taken our report."""
        self.origin = origin

    def check(self, order: Order[Any]) -> None:
        """Raises SiteError if another catalog's coordinator gives orders, while something runs for
        ours.
        """
        theirs, ours = order.origin, self.origin
        if theirs.id and ours.id and theirs.id != ours.id and self._runs():
            raise SiteError(
                f"site {self._name} runs what the system with its state in {ours.folder} has"
                f" created, and takes no orders of the one with its state in {theirs.folder}",
                remedy="Stop one of the two systems, or end the site and start it again.",
            )


LOCK, IDENTITY = "lock", "identity"
PATIENCE_S = 5.0
"""A process that was just killed may take so long to go."""
_POLL_S = 0.1
_WORD = re.compile(rb"[0-9a-f]{16}")


def identity(folder: Folder) -> str:
    """What tells this folder from all others; it is decided when the folder is first used. A person
    may write it there as a plain word, where the file was lost or damaged."""
    data = folder.read(IDENTITY)
    if data is not None:
        records = read_records(data, folder.place(IDENTITY))
        if records.payloads:
            return records.payloads[0].decode()
        if _WORD.fullmatch(data.strip()):
            return data.strip().decode()
    name = secrets.token_hex(8)
    folder.replace(IDENTITY, record(name.encode()))
    return name


@dataclass(frozen=True)
class StateFolder:
    """Held by this process until it is closed."""

    files: RealFolder
    identity: str
    lock: HeldLock

    @classmethod
    def hold(cls, path: Path, site: str, patience_s: float = PATIENCE_S) -> StateFolder:
        """Holds the folder. Raises StorageError that says who else holds it, if that does not end
        soon.
        """
        files = RealFolder(path)
        lock = _locked(files, f"site {site}, process {os.getpid()}", patience_s)
        try:
            return cls(files, identity(files), lock)
        except BaseException:
            lock.close()
            raise

    def close(self) -> None:
        """Releases the folder for other processes. Calling it again does no harm."""
        self.lock.close()


def _locked(files: RealFolder, holder: str, patience_s: float) -> HeldLock:
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return files.lock(LOCK, holder)
        except StorageError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(_POLL_S)
