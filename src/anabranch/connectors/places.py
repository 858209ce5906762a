"""The files of this machine that a source or sink uses."""

from __future__ import annotations

import functools
import glob
import os
import socket
from pathlib import Path

from anabranch.plan.places import Extent, Place


@functools.cache
def machine() -> str:
    """Names the space in which paths mean the same: this boot of a machine, seen from within one
    container.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/mnt')}"
    except OSError:
        return socket.gethostname()


def written(path: Path, *, folder: bool = False) -> list[Place]:
    """The place that a sink writes to."""
    return [_place(path, "tree" if folder else "file", writes=True)]


def below(path: Path) -> list[Place]:
    """The place of all files below a folder, or of a file."""
    return [_place(path, "tree", writes=False)]


def read(path: Path) -> list[Place]:
    """The places that the source `file` reads for a path: see `files.paths.find_files`."""
    if path.is_dir():
        inside = [entry for entry in path.iterdir() if entry.is_symlink()]
        return [_place(path, "children", writes=False), *map(_file, inside)]
    if path.exists() or not glob.has_magic(str(path)):
        return [_file(path)]
    fixed = next(folder for folder in path.parents if not glob.has_magic(str(folder)))
    pattern = _real(fixed) / path.relative_to(fixed)
    place = Place(machine=machine(), path=str(pattern), extent="pattern", writes=False)
    return [place, *(_file(Path(found)) for found in glob.glob(str(path), recursive=True))]


def _file(path: Path) -> Place:
    return _place(path, "file", writes=False)


def _place(path: Path, extent: Extent, *, writes: bool) -> Place:
    return Place(
        machine=machine(), path=str(_real(path)), extent=extent, writes=writes, inode=_inode(path)
    )


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _inode(path: Path) -> str:
    """The inode of a file that has several names; empty for other files."""
    try:
        found = path.stat()
    except OSError:
        return ""
    several = path.is_file() and found.st_nlink > 1
    return f"{found.st_dev}:{found.st_ino}" if several else ""
